package main

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const overview = `shardlease shows which worker holds which shard, what is wrong with a fleet, and what to do about it. It
also steers a fleet: it releases, quarantines, rewinds and finishes shards, evicts workers, and stores
wishes that the next plan follows.

A table holds the lease rows of any number of groups. Most commands need --table and --group.

Environment:
  SHARDLEASE_TABLE, SHARDLEASE_GROUP, SHARDLEASE_BY, …
        Every flag can be set by a variable: SHARDLEASE_ and the name of the flag in capitals, with _ for -.
        The flag wins. No variable sets --yes.
  AWS_REGION, AWS_PROFILE, …
        The AWS SDK reads its own settings. AWS_ENDPOINT_URL_DYNAMODB is the address of a DynamoDB Local.

Exit codes:
  0  done
  1  error; a command that changes something has written nothing, or says what it has done
  2  usage: the command line is wrong, and nothing was read or written
  3  not found: no such shard, worker, wish, group or table
  4  outdated or refused: the row has changed hands, or does not allow the command
  5  unknown outcome: a write was sent and not answered; look before you repeat it
  The command check has the codes of a Nagios plugin: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.`

const examples = `  export SHARDLEASE_TABLE=leases SHARDLEASE_GROUP=orders
  shardlease ls --state free,quarantined
  shardlease check --observe 16s
  shardlease release shard-7 --why "handler hangs"`

// The ids of the groups of commands in the help.
const (
	looking  = "look"
	changing = "change"
	steering = "steer"
	keeping  = "keep"
)

// root returns the tree of commands.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use: "shardlease", Short: "Shows and steers the fleets of a lease table", Long: overview, Example: examples, Version: version(),
		Args: cobra.ArbitraryArgs, SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			err := p.env.setFlags(cmd)
			p.began = err == nil
			return err
		},
		RunE: needsCommand,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	flags := root.PersistentFlags()
	flags.StringVar(&p.at.table, "table", "", "the lease `TABLE`")
	flags.StringVar(&p.at.group, "group", "", "the `GROUP`")
	for _, title := range []cobra.Group{
		{ID: looking, Title: "Look:"}, {ID: changing, Title: "Change a shard or a worker:"},
		{ID: steering, Title: "Steer the plan:"}, {ID: keeping, Title: "Tables, migration and the rest:"},
	} {
		root.AddGroup(&title)
	}
	add := func(id string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	r := &reader{&p.at, p.tables, p.env, p.now}
	o := &observer{r, p.out, p.problems}
	d := &display{r, p.in, p.out}
	op := &operator{reader: r, in: p.in, out: p.out, problems: p.problems, terminal: p.terminal, name: p.operator}
	k := &keeper{op}
	add(looking, o.groupsCommand(), o.lsCommand(), o.workersCommand(), o.getCommand(), o.historyCommand(), o.planCommand(),
		o.journalCommand(), o.eventsCommand(), d.topCommand(), o.checkCommand(&p.code), o.exporterCommand(), o.wishesCommand())
	add(changing, op.moveCommand(), op.releaseCommand(), op.reassignCommand(), op.releaseTaskCommand(), op.evictCommand(), op.quarantineCommand(),
		op.unquarantineCommand(), op.rewindCommand(), op.finishCommand(), op.removeCommand(), op.repairCommand())
	add(steering, op.cordonCommand(), op.drainCommand(), op.pauseCommand(), op.resumeCommand(), op.pinCommand(), op.raiseCommand(), op.liftCommand())
	add(keeping, k.tableCommand(), k.kclCommand(), demoCommand(p.out))
	root.SetHelpCommandGroupID(keeping)
	root.SetCompletionCommandGroupID(keeping)
	return root
}

// needsCommand is the RunE of a command that only has commands below it.
func needsCommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			names = append(names, below.Name())
		}
	}
	if len(args) > 0 {
		return usage("unknown command %q: %s has %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
	}
	return usage("needs a command: %s", strings.Join(names, ", "))
}

// parent returns a command that only has commands below it.
func parent(use, short, long, example string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: cobra.ArbitraryArgs, RunE: needsCommand}
	c.AddCommand(below...)
	return c
}

// An environment returns the value of a variable.
type environment func(name string) (value string, there bool)

// setFlags sets the flags that the command line does not have.
func (env environment) setFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || slices.Contains([]string{"yes", "help", "version"}, f.Name) {
			return
		}
		name := variable(f.Name)
		if value, there := env(name); there && value != "" && err == nil {
			if fault := cmd.Flags().Set(f.Name, value); fault != nil {
				err = usage("%s: %v", name, fault)
			}
		}
	})
	return err
}

// variable returns the name of the environment variable for a flag.
func variable(flag string) string {
	return "SHARDLEASE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// version describes the build of this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "shardlease, unknown build"
	}
	commit := ""
	if at := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" }); at >= 0 {
		commit = ", commit " + info.Settings[at].Value
	}
	return fmt.Sprintf("shardlease %s, %s%s", info.Main.Version, info.GoVersion, commit)
}
