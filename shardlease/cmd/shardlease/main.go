// Shardlease shows the state of a fleet, steers it, and creates and adopts its lease tables.
//
//	shardlease --help               # lists the commands
//	shardlease ls                   # prints the shards of a group
//	shardlease check --observe 16s  # checks the group, for a monitoring system
//	shardlease demo                 # shows what the library does, without AWS
//
// Every flag except --yes can also be set by an environment variable: --table by SHARDLEASE_TABLE,
// --group by SHARDLEASE_GROUP. docs/operations.md describes when to use which command.
//
// main.go has the program and root.go the tree of its commands, each of which belongs to one part of the program:
//
//	reader    reader.go   reads the group; the other parts look at it through the reader
//	observer  look.go     shows the group: ls, get, check and others
//	display   top.go      draws the full screen of top
//	operator  consent.go  asks a person, and changes rows, seats and wishes: change.go, evict.go, wishes.go
//	keeper    tables.go   creates and adopts tables, and migrates from the KCL and back: kcl.go
//
// open.go has how a table is opened, exit.go the exit codes, output.go and grid.go how results are printed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv)
	stop()
	os.Exit(code)
}

// run executes one command, and returns the exit code of the process.
func run(ctx context.Context, args []string, in io.Reader, out, problems io.Writer, env func(string) (string, bool)) int {
	p := &program{
		in: in, out: out, problems: problems, env: env, now: time.Now, operator: operatorName(),
		terminal: isTerminal(in) && isTerminal(problems), tables: new(dynamo),
	}
	return p.run(ctx, args)
}

// A program is one run of the command and all that it touches.
type program struct {
	in            io.Reader
	out, problems io.Writer
	env           environment
	now           func() time.Time
	operator      string // the default of --by
	terminal      bool   // a person can read the questions and answer them
	tables        tables

	at    place // the flags --table and --group
	began bool  // the command line is valid, and the command has begun
	code  int   // the exit code of a command that returned no error
}

// run executes one command, and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	root := p.root()
	root.SetArgs(args)
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.problems)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return p.code
	case cmd.Annotations[monitors] != "":
		return p.unknown(cmd, err)
	}
	code := p.exitCode(err)
	fmt.Fprintln(p.problems, "shardlease:", cleanLines(explain(err, code)))
	if code == exitUsage {
		fmt.Fprintf(p.problems, "See '%s --help'.\n", cmd.CommandPath())
	}
	return code
}

// do returns the RunE of a command.
func do(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return f(cmd.Context(), args) }
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// operatorName returns the user and the machine that run this program.
func operatorName() string {
	name := "operator"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// A usageError is a fault of the command line.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// isUsage reports whether the command line is wrong, and nothing was read or written.
func (p *program) isUsage(err error) bool {
	_, found := errors.AsType[usageError](err)
	return found || !p.began
}
