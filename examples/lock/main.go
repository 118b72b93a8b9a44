//go:build darwin || linux

// Lock runs a program while it holds a lease. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/examples/internal/table"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The exit codes of lock itself. Every other code is that of the program: 128 and the number of a
// signal if a signal ended it.
const (
	exitHeld      = 123 // somebody else holds the lease; the program was not run
	exitLost      = 124 // the lease was lost, and lock stopped the program
	exitFailed    = 125 // lock failed before it ran the program, or the command line is wrong
	exitCannotRun = 126 // the program was found, and cannot be run
	exitNotFound  = 127 // there is no such program
)

const usage = `usage: lock [flags] NAME -- PROGRAM [ARGUMENT]...

Runs a program while it holds the lease NAME. An environment variable can set each flag: SHARDLEASE_TABLE
sets -table, and SHARDLEASE_LOCK_DELAY sets -lock-delay.

The exit code is that of the program, or
  123       somebody else holds the lease
  124       the lease was lost, and lock stopped the program
  125       lock failed before it ran the program, or the command line is wrong
  126, 127  the program cannot be run; there is no such program
`

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		say("%v", err)
	}
	os.Exit(code)
}

// say prints a line of lock itself. Standard output belongs to the program.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "lock: "+format+"\n", args...)
}

// A lock is a command line.
type lock struct {
	leases      table.Flags
	name        string // of the lease
	config      shardlease.SessionConfig
	wait, grace time.Duration
	foreground  bool
	program     []string
}

func parse(args []string) (*lock, error) {
	l := &lock{}
	f := flag.NewFlagSet("lock", flag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(f.Output(), usage, "\nFlags:\n"); f.PrintDefaults() }
	l.leases.Define(f)
	f.StringVar(&l.config.Group, "group", "locks", "the `GROUP` of the lease: the same for all processes that want the lease")
	f.StringVar(&l.config.Name, "name", "", "the `NAME` under which this process holds the lease; an operator can reassign the lease to a name. Default: the host, the process and a random part")
	f.StringVar(&l.config.Task, "task", "", "the `TASK` of the program, such as deploy/eu: shown to others while they find the lease held")
	f.DurationVar(&l.config.TTL, "ttl", 10*time.Second, "the lease time: how soon others notice that this process is dead")
	f.DurationVar(&l.config.LockDelay, "lock-delay", 5*time.Second, "how long nobody gets the lease after this process has lost it; should be at least -grace")
	f.DurationVar(&l.wait, "wait", 25*time.Second, "how long to wait for the lease; negative: forever; 0: only for a holder that looks dead, until it shows a sign of life or is evicted")
	f.DurationVar(&l.grace, "grace", 5*time.Second, "how long after SIGTERM the program gets SIGKILL, when the lease is lost")
	f.BoolVar(&l.foreground, "foreground", false, "leave the program in the process group of lock, so that the program can read from a terminal")
	var faults []error
	f.VisitAll(func(each *flag.Flag) {
		variable := "SHARDLEASE_" + strings.ToUpper(strings.ReplaceAll(each.Name, "-", "_"))
		if value := os.Getenv(variable); value != "" {
			if err := f.Set(each.Name, value); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", variable, err))
			}
		}
	})
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() < 3 || f.Arg(1) != "--" {
		return nil, errors.New("the arguments must be NAME -- PROGRAM [ARGUMENT]...: see lock -help")
	}
	l.name, l.program = f.Arg(0), f.Args()[2:]
	return l, nil
}

func run(args []string) (code int, err error) {
	l, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return exitFailed, err
	}
	signals := notify()
	ctx, settle := interruptible(signals)
	defer settle()
	store, err := l.leases.Open(ctx, l.config.Group)
	if err != nil {
		return codeOfError(ctx, err)
	}
	session, err := shardlease.NewSession(store, l.config)
	if err != nil {
		return codeOfError(ctx, err)
	}
	running, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); _ = session.Run(running) }() // its error is also that of Acquire
	defer func() { stop(); <-over }()                           // Run gives up the seat

	tenure, err := l.acquire(ctx, session)
	settle() // from here on, signals are for the program
	if err == nil {
		defer tenure.Release("the program has ended")
		err = context.Cause(ctx) // a signal that came last
	}
	if err != nil {
		return codeOfError(ctx, err)
	}
	return l.execute(tenure, signals)
}

// codeOfError returns the exit code and the message if the program is not run.
func codeOfError(ctx context.Context, err error) (int, error) {
	if interrupted, ok := errors.AsType[interruption](context.Cause(ctx)); ok {
		return 128 + int(interrupted.signal), nil
	}
	if errors.Is(err, lease.ErrHeld) {
		return exitHeld, err
	}
	return exitFailed, err
}
