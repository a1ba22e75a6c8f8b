package status

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
)

// Cluster returns the sonde cluster command.
func Cluster() *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Show the engines that share targets over etcd",
		Long: "Engines with the same cluster block share the targets of their configuration. Each of these commands asks one\n" +
			"engine what it knows of all.",
	}
	cli.MakeGroup(c)
	c.AddCommand(
		clusterCommand(&cobra.Command{
			Use:     "status",
			Short:   "Show what an engine owns, and whether its lease lasts",
			Example: "  sonde-fleet cluster status --address 10.0.0.7:9650",
		}, writeClusterStatus),
		clusterCommand(&cobra.Command{
			Use:     "members",
			Short:   "Show the engines of a cluster, what each owns, and which are drained",
			Example: "  sonde-fleet cluster members",
		}, writeMembers),
	)
	return c
}

// clusterCommand completes a command that queries an engine's cluster.
func clusterCommand(c *cobra.Command, show func(io.Writer, api.Cluster) error) *cobra.Command {
	var f connection
	asJSON := false
	c.Args = cli.Args(0, 0, "no arguments are allowed")
	c.RunE = func(c *cobra.Command, _ []string) error {
		known, err := ask(c.Context(), f, func(ctx context.Context, client *api.Client) (api.Cluster, error) { return client.Cluster(ctx) })
		switch {
		case err != nil:
			return err
		case asJSON:
			return cli.WriteJSON(c.OutOrStdout(), known)
		}
		return show(c.OutOrStdout(), known)
	}
	f.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON, as the API does")
	return c
}

func writeClusterStatus(w io.Writer, c api.Cluster) error {
	lease := "expired: the engine restarts none of its targets and sends no notices"
	if c.Allowed {
		lease = fmt.Sprintf("lasts at least %v more", leaseLeft(c))
	}
	now := time.Now()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "engine:\t%s\n", probe.OneLine(c.Name, probe.MaxGroupName))
	fmt.Fprintf(table, "member:\t%s\n", memberText(c, now))
	fmt.Fprintf(table, "lease:\t%s\n", lease)
	if !c.Heard.IsZero() {
		fmt.Fprintf(table, "etcd:\tlast heard from %s ago\n", age(c.Heard, now))
	}
	fmt.Fprintf(table, "shards:\t%d of %d\n", c.Shards, c.ShardCount)
	fmt.Fprintf(table, "targets:\t%d of %d that are shared\n", c.Owned, c.Targets)
	if isCutOff(c) && c.Owned < c.Targets {
		fmt.Fprintf(table, "stale:\tthe %d of other engines are shown as they were %s ago\n", c.Targets-c.Owned, age(c.Heard, now))
	}
	if c.Zone != "" {
		fmt.Fprintf(table, "zone:\t%s\n", probe.OneLine(c.Zone, quorum.MaxZone))
	}
	if c.Polls > 0 || c.Gray > 0 {
		fmt.Fprintf(table, "quorum:\tvotes on %s; engines differ on %d of its own\n", cli.Plural(c.Polls, "probe"), c.Gray)
	}
	if text := drainText(c, now); text != "" {
		fmt.Fprintf(table, "drained:\t%s\n", text)
	}
	if c.Doubt != api.DoubtNone {
		fmt.Fprintf(table, "doubts:\t%s\n", doubtText(c.Doubt))
	}
	if c.Config != nil {
		fmt.Fprintf(table, "revision:\t%s\n", revisionText(c.Name, *c.Config))
	}
	return table.Flush()
}

// isCutOff reports whether an engine's data about the others is outdated: etcd responded earlier but no longer does, or the
// engine was suspended.
func isCutOff(c api.Cluster) bool { return !c.Allowed && !c.Heard.IsZero() }

// memberText returns whether an engine is a member of its cluster, and the number of members.
func memberText(c api.Cluster, now time.Time) string {
	text := "yes, of " + cli.Plural(len(c.Members), "engine")
	if !c.Member {
		text = "no, of " + cli.Plural(len(c.Members), "engine")
	}
	switch {
	case c.Refused != "":
		return "no: " + probe.CleanText(c.Refused, probe.MaxDetail)
	case isCutOff(c):
		return fmt.Sprintf("not known; %s ago: %s", age(c.Heard, now), text)
	case !c.Allowed:
		return "not known: etcd has not answered yet"
	}
	return text
}

// drainText returns why this engine is drained, or "" if it is not.
func drainText(c api.Cluster, now time.Time) string {
	text := ""
	if d, isDrained := drainOf(c, c.Name); isDrained {
		text = orderText(d, now) + "; sonde-fleet cluster undrain ends that"
	}
	hasOther := false
	for _, m := range c.Members {
		if m.Name == c.Name && m.Drained && text == "" {
			text = "it does not run the current revision"
		}
		hasOther = hasOther || !m.Drained
	}
	if text != "" && !hasOther && c.Shards > 0 {
		text += "; it has shards, since all engines are drained"
	}
	return text
}

// drainOf returns an operator's order to drain an engine, if there is one.
func drainOf(c api.Cluster, name string) (d api.ClusterDrain, exists bool) {
	i := slices.IndexFunc(c.Drains, func(d api.ClusterDrain) bool { return d.Name == name })
	if i < 0 {
		return d, false
	}
	return c.Drains[i], true
}

// orderText returns who drained an engine, and since when.
func orderText(d api.ClusterDrain, now time.Time) string {
	if d.By == "" {
		return "by an operator"
	}
	return fmt.Sprintf("by %s, %s ago", probe.OneLine(d.By, maxOperator), age(d.At, now))
}

// maxOperator limits the displayed name of an operator, in bytes.
const maxOperator = 256

// doubtText returns the effects of an engine's doubts, and the remedy.
func doubtText(d api.Doubt) string {
	const effect = "its votes do not count, and it restarts none of its targets"
	switch d {
	case api.DoubtAlone:
		return "it alone sees many targets fail: " + effect + "; check its network and its name servers"
	case api.DoubtRecovering:
		return "it alone saw many targets fail until a moment ago: it restarts none of its targets yet"
	}
	return "the engine is not well: its votes do not count, and it restarts only targets that have answered; its log says why"
}

// revisionText returns which revision of the pushed configuration an engine runs.
func revisionText(engine string, c api.ClusterConfig) string {
	running := revisionNumber(c.Revision)
	wanted, what := c.Current, "the current one"
	if c.Tries(engine) {
		wanted, what = c.Trial.Revision, fmt.Sprintf("a trial; the current one is %s", revisionNumber(c.Current))
	}
	switch {
	case c.Refused != "":
		return fmt.Sprintf("%s; it has refused %d: %s", running, wanted, probe.OneLine(c.Refused, probe.MaxDetail))
	case wanted == 0 && c.Revision > 0:
		return running + "; the current one is not known"
	case wanted != c.Revision:
		return fmt.Sprintf("%s; it is to run %d, %s", running, wanted, what)
	case c.Revision > 0:
		return running + ", " + what
	}
	return running
}

func revisionNumber(n int64) string {
	if n == 0 {
		return "none"
	}
	return strconv.FormatInt(n, 10)
}

func leaseLeft(c api.Cluster) time.Duration {
	return time.Duration(c.LeaseSeconds * float64(time.Second)).Round(100 * time.Millisecond)
}

func writeMembers(w io.Writer, c api.Cluster) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	revisions := c.Config != nil
	fmt.Fprintln(table, "ENGINE\tSHARDS\tTARGETS\tHEALTH\t"+cellIf(revisions, "REVISION"))
	now := time.Now()
	for _, m := range c.Members {
		revision := "unknown"
		if m.Revision != nil {
			revision = revisionNumber(*m.Revision)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s%s\n", probe.OneLine(m.Name, probe.MaxGroupName), m.Shards, m.Targets,
			probe.OneLine(string(m.Health), maxHealth), cellIf(revisions, revision), memberNotes(c, m, now))
	}
	for _, d := range c.Drains {
		if !slices.ContainsFunc(c.Members, func(m api.ClusterMember) bool { return m.Name == d.Name }) {
			fmt.Fprintf(table, "%s\t-\t-\t-\t%snot a member, drained %s\n", probe.OneLine(d.Name, probe.MaxGroupName), cellIf(revisions, "-"), orderText(d, now))
		}
	}
	return table.Flush()
}

// maxHealth limits the displayed health, in bytes, which another release may have set.
const maxHealth = 32

// memberNotes returns the notes on a member: drain, differences and refused revisions.
func memberNotes(c api.Cluster, m api.ClusterMember, now time.Time) string {
	var notes []string
	if m.Name == c.Name {
		notes = append(notes, "this engine")
	}
	if d, isOrder := drainOf(c, m.Name); isOrder {
		notes = append(notes, "drained "+orderText(d, now))
	} else if m.Drained {
		notes = append(notes, "drained")
	}
	if m.Name != c.Name && isCutOff(c) {
		notes = append(notes, fmt.Sprintf("as it was %s ago", age(c.Heard, now)))
	}
	if m.Differs != nil {
		notes = append(notes, differenceText(*m.Differs))
	}
	isTrial := c.Config.Tries(m.Name)
	switch {
	case isTrial && m.Refused != "":
		notes = append(notes, fmt.Sprintf("has refused revision %d, a trial", c.Config.Trial.Revision))
	case isTrial:
		notes = append(notes, fmt.Sprintf("tries revision %d, a trial", c.Config.Trial.Revision))
	case m.Refused != "":
		notes = append(notes, "has refused the current revision")
	}
	return strings.Join(notes, ", ")
}

// differenceText describes how the files of an engine differ.
func differenceText(d api.ClusterDifference) string {
	var parts []string
	say := func(n int, examples []string, format string) {
		if n == 0 {
			return
		}
		text := fmt.Sprintf(format, cli.Plural(n, "target"))
		for i, name := range examples {
			text += []string{": ", ", "}[min(i, 1)] + probe.OneLine(name, probe.MaxTargetName)
		}
		if n > len(examples) && len(examples) > 0 {
			text += ", …"
		}
		parts = append(parts, text)
	}
	say(d.Lacks, d.LacksExamples, "lacks %s")
	say(d.More, nil, "has %s that this engine lacks")
	say(d.Changed, d.ChangedExamples, "probes up to %s differently")
	return strings.Join(parts, "; ")
}

// cellIf returns a cell with its separator, or "" if the table does not show the column.
func cellIf(isShown bool, cell string) string {
	if isShown {
		return cell + "\t"
	}
	return ""
}

// clusterLine returns a line such as
//
//	cluster: engine-1 of 3 engines has 10 of 30 shared targets
func clusterLine(c api.Cluster, now time.Time) string {
	var s strings.Builder
	fmt.Fprintf(&s, "cluster: %s of %s has %d of %s", probe.OneLine(c.Name, probe.MaxGroupName), cli.Plural(len(c.Members), "engine"), c.Owned, cli.Plural(c.Targets, "shared target"))
	switch {
	case c.Refused != "":
		s.WriteString(", and restarts none of them: " + probe.CleanText(c.Refused, probe.MaxDetail))
	case !c.Allowed:
		s.WriteString(", and restarts none of them, since its lease has expired: etcd is unreachable, or the engine was suspended")
		if !c.Heard.IsZero() {
			fmt.Fprintf(&s, "; etcd was last heard from %s ago: other engines and their targets are shown as they were then", age(c.Heard, now))
		}
	case c.Doubt != api.DoubtNone:
		s.WriteString(", and restarts none of them: " + doubtText(c.Doubt))
	}
	if n := countDiffering(c); n > 0 {
		fmt.Fprintf(&s, "; the files of %s differ from those of this engine: see sonde-fleet cluster members", cli.Plural(n, "engine"))
	}
	s.WriteString("\n")
	return s.String()
}

// countDiffering returns the number of engines whose shared targets differ from those of this engine.
func countDiffering(c api.Cluster) (n int) {
	for _, m := range c.Members {
		if m.Differs != nil {
			n++
		}
	}
	return n
}
