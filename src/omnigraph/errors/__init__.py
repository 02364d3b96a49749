"""Every error that Omnigraph raises on purpose, as one tree.

OmnigraphError
├── UsageError                 the call itself is wrong (exit code 2)
│   ├── ConsentRequired        a destructive verb on a remote target without --yes
│   ├── UnsupportedStore       a URI scheme or a file system that can't hold a graph
│   ├── DirectOnly             a server is named for a command that works on storage itself
│   ├── GraphNotChosen         a cluster has several graphs and none is named
│   ├── NotAvailable           a feature that this version does not have yet
│   └── InvalidCursor          a text that is no position of a change feed
├── SchemaError
│   ├── SchemaSyntaxError      the .pg text does not parse
│   ├── SchemaRuleError        it parses and breaks a rule of the language
│   └── UnsupportedSchemaChange  the plan holds a step that can't be applied
├── QueryError
│   ├── QuerySyntaxError       the .gq text does not parse (Q000)
│   ├── QueryCheckError        it parses and does not fit the schema (T1 …)
│   ├── ParameterError         the values are not those that the query declares
│   ├── QueryValueError        a value that the query computes has no place: too large, no date, no pattern
│   ├── QueryTimeout           it took longer than its timeout
│   ├── ResourceLimit          it needs more rows or memory than its limit
│   └── OutOfMemory            it needs more memory than the machine has
├── PipelineFileError          a pipeline file that is not what it should be, with the place
│   ├── PipelineVariableMissing  it names a variable that has no value
│   └── PolicyFileError        the same for a policy file of maintenance
├── InputError
│   ├── RowsRefused            rows that can't be taken, with the first 20 and counts per rule
│   │   ├── RecordError        lines of an input that are no records, and whatever else is wrong with it
│   │   ├── ConstraintViolation  rows break a rule of the schema
│   │   └── KeyConflict        a strict insert of an id that exists
│   ├── UnknownType
│   ├── UnknownProperty
│   ├── InvalidFilter          a filter text that can't be understood, or fails on a row
│   ├── RecordTooLong          a line of an input, or a record of CSV, is longer than the load allows
│   ├── FileUnreadable         a file that a command is to read is missing, forbidden or damaged
│   ├── FileUnwritable         a file that a command is to write can't be written
│   ├── ExportFolderTaken      the folder of an export holds something that is not to be touched
│   └── PlanUnusable           a saved plan that can't be applied to this graph
├── ConflictError
│   ├── PreconditionFailed     --if-commit lost (exit code 4)
│   ├── ReadSetConflict        what the transaction read has changed
│   ├── StaleView              a handle or snapshot is behind what it needs
│   ├── MergeConflicts         both sides of a merge changed the same thing, or together break a rule
│   ├── ResolutionStale        a resolution of a merge conflict is about an entity that has changed since
│   ├── WriterBusy             another writer held the branch for longer than the caller waits
│   └── WriterActive           a command that needs a branch at rest finds a writer at work there
├── RecoveryError
│   ├── RecoveryPending        an operation of a crashed writer can't be recovered now
│   ├── UncoveredDrift         a table has versions that no operation of omnigraph explains
│   ├── BranchPinUnreadable    a version that a live branch pins can't be opened
│   └── BadRecoveryRecord      an object under __recovery can't be understood
├── FormatError
│   ├── NewerFormat            the graph was written by a newer omnigraph
│   ├── GraphMoved             a folder with forks was copied or moved: they refer to the old address
│   ├── HostileOrDamagedManifest  a stored name, path or number has not the form that it must have
│   ├── ManifestMissing        tables of a graph exist without a manifest
│   └── NotAGraph              something exists at the address that is not a graph
├── LookupFailed
│   ├── GraphNotFound, GraphExists
│   ├── CloneUnfinished        a clone at this address is not finished
│   ├── BranchNotFound, BranchExists, BranchInUse, InvalidBranchName, CommitNotOnMain
│   ├── TagNotFound, TagExists, InvalidTagName
│   ├── CommitNotFound, NoCommitAtThatTime
│   │   └── RevisionNotFound   a word that is no commit, branch, tag or time
│   ├── FeedBranchReplaced     a cursor of a change feed is not in the history of its branch
│   ├── FeedCollected          cleanup removed the state that a change feed continues from
│   └── VersionReclaimed       the version existed and cleanup, or a schema change, removed it
│       └── VersionMissing     it is published, so no command removed it, and it does not exist
├── ClusterError
│   ├── ClusterStateMissing    a folder that is to be a cluster's has no state
│   ├── ClusterStateInvalid    a cluster's state can't be understood
│   ├── ClusterEmpty           a cluster that serves no graph
│   └── GraphNotInCluster      a cluster has no graph of that id
├── EngineError
│   ├── EngineUnavailable      Spark can't be started or reached
│   └── TaskFailed             a task of a job failed for no reason that has a name
├── EmbeddingError
│   ├── EmbeddingKeyMissing    a provider's key is not in the environment
│   ├── EmbeddingMismatch      the model or its dimensions are not those that the schema declares
│   └── EmbeddingFailed        a provider refused, failed in every try, or answered something that is no vector
└── StorageError               the store failed: disk full, I/O error, access denied, network
    ├── CleanupNeedsSpace      a full disk leaves cleanup no room to begin
    └── SymlinkInGraph         a symbolic link lies below the root of a graph

`condition` is a contract: stable, searchable, the same in Python, JSON and the docs. Fields are plain JSON values.
"""

from omnigraph.errors.base import OmnigraphError
from omnigraph.errors.feed import FeedBranchReplaced, FeedCollected, InvalidCursor
from omnigraph.errors.graph import (
    BadRecoveryRecord,
    BranchExists,
    BranchInUse,
    BranchNotFound,
    BranchPinUnreadable,
    CloneUnfinished,
    ClusterEmpty,
    ClusterError,
    ClusterStateInvalid,
    ClusterStateMissing,
    CommitNotFound,
    CommitNotOnMain,
    ConflictError,
    FormatError,
    GraphExists,
    GraphMoved,
    GraphNotFound,
    GraphNotInCluster,
    HostileOrDamagedManifest,
    InvalidBranchName,
    InvalidTagName,
    LookupFailed,
    ManifestMissing,
    NewerFormat,
    NoCommitAtThatTime,
    NotAGraph,
    PreconditionFailed,
    ReadSetConflict,
    RecoveryError,
    RecoveryPending,
    RevisionNotFound,
    StaleView,
    TagExists,
    TagNotFound,
    UncoveredDrift,
    VersionMissing,
    VersionReclaimed,
    WriterActive,
    WriterBusy,
)
from omnigraph.errors.input import (
    ConstraintViolation,
    ExportFolderTaken,
    FileUnreadable,
    FileUnwritable,
    InputError,
    InvalidFilter,
    KeyConflict,
    PlanUnusable,
    RecordError,
    RecordTooLong,
    RowsRefused,
    UnknownProperty,
    UnknownType,
    Violation,
)
from omnigraph.errors.language import (
    NotOnSpark,
    OutOfMemory,
    ParameterError,
    QueryCheckError,
    QueryError,
    QuerySyntaxError,
    QueryTimeout,
    QueryValueError,
    ResourceLimit,
    SchemaError,
    SchemaRuleError,
    SchemaSyntaxError,
    UnsupportedSchemaChange,
)
from omnigraph.errors.merge import MergeConflicts, ResolutionStale
from omnigraph.errors.usage import (
    ConsentRequired,
    DirectOnly,
    GraphNotChosen,
    NotAvailable,
    PipelineFileError,
    PipelineVariableMissing,
    PolicyFileError,
    UnsupportedStore,
    UsageError,
)
from omnigraph.errors.work import (
    CleanupNeedsSpace,
    EmbeddingError,
    EmbeddingFailed,
    EmbeddingKeyMissing,
    EmbeddingMismatch,
    EngineError,
    EngineUnavailable,
    StorageError,
    SymlinkInGraph,
    TaskFailed,
)

__all__ = [
    "BadRecoveryRecord",
    "BranchExists",
    "BranchInUse",
    "BranchNotFound",
    "BranchPinUnreadable",
    "CleanupNeedsSpace",
    "CloneUnfinished",
    "ClusterEmpty",
    "ClusterError",
    "ClusterStateInvalid",
    "ClusterStateMissing",
    "CommitNotFound",
    "CommitNotOnMain",
    "ConflictError",
    "ConsentRequired",
    "ConstraintViolation",
    "DirectOnly",
    "EmbeddingError",
    "EmbeddingFailed",
    "EmbeddingKeyMissing",
    "EmbeddingMismatch",
    "EngineError",
    "EngineUnavailable",
    "ExportFolderTaken",
    "FeedBranchReplaced",
    "FeedCollected",
    "FileUnreadable",
    "FileUnwritable",
    "FormatError",
    "GraphExists",
    "GraphMoved",
    "GraphNotChosen",
    "GraphNotFound",
    "GraphNotInCluster",
    "HostileOrDamagedManifest",
    "InputError",
    "InvalidBranchName",
    "InvalidCursor",
    "InvalidFilter",
    "InvalidTagName",
    "KeyConflict",
    "LookupFailed",
    "ManifestMissing",
    "MergeConflicts",
    "NewerFormat",
    "NoCommitAtThatTime",
    "NotAGraph",
    "NotAvailable",
    "NotOnSpark",
    "OmnigraphError",
    "OutOfMemory",
    "ParameterError",
    "PipelineFileError",
    "PipelineVariableMissing",
    "PlanUnusable",
    "PolicyFileError",
    "PreconditionFailed",
    "QueryCheckError",
    "QueryError",
    "QuerySyntaxError",
    "QueryTimeout",
    "QueryValueError",
    "ReadSetConflict",
    "RecordError",
    "RecordTooLong",
    "RecoveryError",
    "RecoveryPending",
    "ResolutionStale",
    "ResourceLimit",
    "RevisionNotFound",
    "RowsRefused",
    "SchemaError",
    "SchemaRuleError",
    "SchemaSyntaxError",
    "StaleView",
    "StorageError",
    "SymlinkInGraph",
    "TagExists",
    "TagNotFound",
    "TaskFailed",
    "UncoveredDrift",
    "UnknownProperty",
    "UnknownType",
    "UnsupportedSchemaChange",
    "UnsupportedStore",
    "UsageError",
    "VersionMissing",
    "VersionReclaimed",
    "Violation",
    "WriterActive",
    "WriterBusy",
]

for _name in __all__:
    # Tracebacks and pickles name the package from which errors are imported, not the module that defines them.
    globals()[_name].__module__ = __name__
