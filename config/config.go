package config

import (
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
)

// Config is what a configuration asks for.
type Config struct {
	Engine  Engine
	Cluster *Cluster // nil: the engine shares no targets
	Set     probe.Set
	Quorums map[probe.ID]quorum.Rule // of those probes of Set that engines of the cluster decide together; with their defaults
	Targets map[string]Target        // by name: web, or web["a"] for an element of for_each
	Plugins map[string]Plugin        // by name
	Scripts map[string]Script        // by name
	Groups  map[string]Group         // by name

	Gateways     map[string]Gateway     // by name
	Maintenances map[string]Maintenance // by name
	ProbeModules map[string]ProbeModule // by name
	Notifiers    map[string]Notifier    // by name

	Discoveries []Discovery // in the order of their blocks

	// Secrets are the sensitive texts of the configuration: values of variables, of locals and
	// of arguments that are, or are made of, sensitive values.
	Secrets []string

	Described    bool // parsed with Options.Describe: to be compared with another, and not to come into use
	descriptions map[subject]description
}

// Engine is the engine block of a configuration.
type Engine struct {
	Listen           string              `hcl:"listen,optional" doc:"address and port of the status page, the API and /metrics; an empty text for none. An address that other machines can reach needs token_file, or tls with client_ca_file; port 0 lets the system choose one"`
	Concurrency      int                 `hcl:"concurrency,optional,nonzero" doc:"how many attempts that need a goroutine may run at once; those of tcp and http at IP addresses need none on Linux, and are limited to 16 times as many" default:"1024" min:"1" max:"1048576"`
	Compatibility    probe.Compatibility `hcl:"compatibility,optional" doc:"none: the documented behaviour of Kubernetes; kubelet: that of the kubelet with its known bugs, and its metrics prober_probe_total and prober_probe_duration_seconds" default:"none"`
	TokenFile        string              `hcl:"token_file,optional" doc:"file with the bearer token that clients of the API must send" default:"no token"`
	PublicBadges     bool                `hcl:"public_badges,optional" json:",omitempty" doc:"serves /badge/NAME.svg, the state of a target as a picture, and /badge/group/NAME.svg to everyone without the token, for the pages of other sites" default:"false"`
	TLS              *TLS                `hcl:"tls,block" doc:"serves the page and the API by HTTPS"`
	Beats            *Beats              `hcl:"beats,block" json:",omitempty" doc:"receives the beats that targets send by UDP, besides those that they send to the API"`
	LogLevel         slog.Level          `hcl:"log_level,optional" oneof:"debug info warn error" doc:"least important records that are logged" default:"info"`
	LogFormat        string              `hcl:"log_format,optional" oneof:"auto text json" doc:"form of the log: auto is text on a terminal, and JSON elsewhere" default:"auto"`
	AllowEmpty       bool                `hcl:"allow_empty,optional" doc:"permits a configuration without targets, which is otherwise an error, since it would end everything that runs" default:"false"`
	ReloadGuard      probe.Share         `hcl:"reload_guard,optional" doc:"largest share of its targets (a percentage such as \"80%\") that a reload may remove or restart in an engine with ten targets or more; 100% permits every reload. The value in the new configuration counts" default:"50%"`
	Watch            bool                `hcl:"watch,optional" doc:"reloads the configuration when its files have changed, or files that its functions read, and have then been still for a second. A change that would be rejected is logged once" default:"false"`
	NoIsolationCheck bool                `hcl:"no_isolation_check,optional" doc:"makes failures without an answer count against their targets even if no target or name server answers; otherwise the engine takes that for a fault of its own network" default:"false"`
	MetricsMaxProbes int                 `hcl:"metrics_max_probes,optional,nonzero" doc:"up to how many probes /metrics has series of each probe and target; with more it has only their sums" default:"20000" min:"1" max:"1000000"`
	MetricLabels     []string            `hcl:"metric_labels,optional" doc:"names of the labels of targets that /metrics has, in sonde_target_labels" default:"none"`
	PluginCache      *string             `hcl:"plugin_cache,optional" doc:"directory for the compiled code of plugins; an empty text for none. It is created if missing. Only the user of the engine may be able to write to it, since the engine runs its content" default:"sonde/plugins in the cache directory of the user"`
	PluginMemory     int64               `hcl:"plugin_memory,optional,nonzero,bytes" doc:"how much memory the instances of all plugins may use together" default:"1GiB" min:"1MiB"`
	State            string              `hcl:"state,optional" doc:"file that keeps verdicts, runs and restarts for the next start; a relative path starts at the working directory. Its directory must belong to the user of the engine or to root, and so should those above" default:"none"`
	StateMaxAge      time.Duration       `hcl:"state_max_age,optional,nonzero" doc:"age at which state is forgotten at the start, and what the engines of a cluster share once all were stopped; needs state or a cluster block" default:"10m" min:"10s"`
	Resume           string              `hcl:"resume,optional" oneof:"trust verify forget" doc:"what the engine does with the state at its start: trust goes on with it, verify keeps verdicts, starts runs again and attempts each probe at once, forget starts without verdicts, runs, penalties of flaps, restart counts and back-offs, and keeps histories, stops, pauses, the latest times in datagrams with beats and processes with adopt. In a cluster it holds for shared targets when no engine of it has seen their last owner. Needs state or a cluster block" default:"trust"`

	Settings any // what Options.EngineSettings made of the block's other arguments
}

// The values of Engine.Resume.
const (
	Trust  = "trust"  // verdicts, runs and holds go on
	Verify = "verify" // verdicts stay, runs start again, and each probe is attempted at once
	Forget = "forget" // the engine starts without state
)

// The defaults of Engine.ReloadGuard and Beats.MaxAge.
const (
	defaultReloadGuard probe.Share = 0.5
	defaultBeatAge                 = 5 * time.Minute
)

// TLS is how the API is served. Relative paths start at the working directory.
type TLS struct {
	CertFile     string `hcl:"cert_file" doc:"PEM file with the certificate of the server and the intermediate certificates; a relative path starts at the working directory"`
	KeyFile      string `hcl:"key_file" doc:"PEM file with the private key of the certificate"`
	ClientCAFile string `hcl:"client_ca_file,optional" doc:"PEM file with the authorities of client certificates: clients need a certificate that one of them has signed" default:"no client certificates"`
}

// Beats is how beats are received as datagrams.
type Beats struct {
	Listen string `hcl:"listen" doc:"address and port for datagrams; port 0 lets the system choose one. Datagrams are signed with the token of their target, and never answered, so that an address that other machines can reach needs no other protection"`

	MaxAge time.Duration `hcl:"max_age,optional,nonzero" doc:"how old a datagram may be, by the clocks of its sender and of this machine: an older one changes nothing, since someone may have held it back" default:"5m" min:"1s" json:",omitempty"`
}

// Target is what a target block says about the lifecycle of its target.
type Target struct {
	Driver   any // what the Driver of the target's process or restart block made of it; nil without such a block
	Settings any // what Options.TargetSettings made of restart_policy, back_off and the like

	StartAfter []string `json:",omitempty"` // targets that must be up before this one is started

	DependsOn []string `json:",omitempty"` // targets without which this one cannot work

	Damping probe.Damping `json:",omitzero"` // when it is damped; zero without a damping block, and otherwise with its defaults

	Labels map[string]string `json:",omitempty"` // of a target without probes; those of others are in Config.Set
}

// Plugin is a plugin block: a WebAssembly module that adds a handler block.
type Plugin struct {
	Name          string `hcl:"-"` // the block's label, and the name of the handler block that it adds
	Source        string `hcl:"source" doc:"file of the module; a relative path starts at the folder of the configuration file"`
	SHA256        string `hcl:"sha256,optional" doc:"hash of the file, 64 hexadecimal digits, as sonde plugin inspect shows it. Required unless the file is below the folder of the configuration" default:"none"` // of the file, 64 hexadecimal digits; required unless the file is below the configuration's folder
	AllowUnpinned bool   `hcl:"allow_unpinned,optional" doc:"permits a module without sha256 anywhere: whoever can write the file decides what the engine runs" default:"false"`

	Settings any `hcl:"-"` // what Options.PluginSettings made of grant, limits and the like
}

// Options are what the meaning of a configuration depends on besides its text. The
// zero value is valid.
//
// The value of a variable is that of the last of Vars with its name, else that of
// the last of VarFiles, else that of SONDE_VAR_name in the environment, else its
// default.
type Options struct {
	Handlers map[string]Handler // blocks of a probe that make its attempts, by name
	Drivers  map[string]Driver  // blocks of a target that say what starts or restarts it, by name

	Listen string // default of the engine block's listen

	// NoCluster makes a cluster block an error: the program cannot share targets.
	NoCluster bool

	// WarnOfNetwork returns what this machine lacks of the network block of a target, in the form of Handler.Warn. Nil: there are no warnings.
	WarnOfNetwork func(probe.Network) error

	// RunsTargets says that the program runs a target without a Driver itself: then a liveness probe of one has an effect.
	RunsTargets bool

	// IsPushed reports whether the source with a name was pushed to the engines of a cluster, or is to be.
	// What belongs to each engine, its cluster and engine blocks, is an error there. Default: none was.
	IsPushed func(source string) bool

	// ToPush says that the sources of IsPushed, and the files that they name by relative paths, are about to be
	// written to where others can read them: a secret in them is an error.
	ToPush bool

	// RequireTargets makes a configuration without targets an error, unless its engine
	// block has allow_empty.
	RequireTargets bool

	// MoreTargets says that there will be targets beside those of the configuration, so that
	// groups may name others.
	MoreTargets bool

	Gateways  map[string]Settings // blocks of a gateway that say what keeps it up to date, by name
	Notifiers map[string]Settings // blocks of a notify block that say by what it tells, by name

	// GatewayConflict returns what is wrong with the block inside of gateway b beside gateway a, since
	// only one of them can have a file or a listener, for example; nil if nothing is. Beside the engine, a has an Engine
	// with Listen or State as its Settings. Of a target, b has what its Driver has made. Default: nothing is wrong.
	GatewayConflict func(a, b Gateway) *probe.FieldError

	CheckAllowed func(string) error // says what is wrong with an element of allow of a probe_module block; default: nothing

	EngineSettings Settings // further arguments and blocks of the engine block
	TargetSettings Settings // of a target block
	PluginSettings Settings // of a plugin or script block

	// Discovered returns what the source of a discover block has found last; nil for nothing yet. Default: nothing.
	Discovered func(Discovery) discover.Elements

	// Describe keeps the arguments of targets and probes as text, for Config.Differences.
	Describe bool

	// Plugin reads a plugin's file, and returns its SHA-256 in 64 lower-case hexadecimal digits. Load returns the plugin's handler
	// block; it is only called when the configuration permits this file. Errors are reported as those of
	// Handler.Make. Default: plugin blocks are errors.
	Plugin func(Engine, Plugin) (sha256 string, load func() (Handler, error), err error)

	// Script returns the handler block of a script. A *ScriptError is reported where it is in
	// the script's text, other errors as those of Handler.Make. Default: script blocks are
	// errors.
	Script func(Engine, Script) (Handler, error)

	Vars     []Var                                     // --var, in order
	VarFiles []Source                                  // --var-file, in order; each line is name = value, or a JSON object
	Env      func(name string) (value string, ok bool) // default os.LookupEnv

	// ReadFile reads a regular file that the text names, of at most max bytes. IsFile reports
	// whether there is one. Default: they look at the disk.
	ReadFile func(path string, max int64) ([]byte, error)
	IsFile   func(path string) bool
}

// Var is the value of a variable as text. A variable whose type is string takes it
// literally; for any other type it is parsed as HCL: ["a", "b"].
type Var struct {
	Name  string
	Value string
}

// Bounds on how much a configuration may ask for.
const (
	maxForEach = 200_000   // elements of one for_each
	maxDynamic = 1_000     // elements of one dynamic block
	maxProbes  = 1_000_000 // in total
	maxPorts   = 1_000     // named ports of one target
)

// MaxSourceBytes is how long one file may be.
const MaxSourceBytes = 2 << 20

// Bounds on the text of a configuration, since HCL's parsers recurse, and a stack
// overflow ends the process. HCL takes about 1 KiB of memory per byte of the worst
// text.
const (
	maxSourcesBytes = 32 << 20 // of all files
	maxNesting      = 100      // brackets in brackets
	maxChain        = 1000     // operators in one argument
)
