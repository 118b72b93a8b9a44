package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// now is the time at which every transcript begins.
func now() time.Time { return time.Date(2000, 1, 2, 12, 0, 0, 0, time.UTC) }

// A world is what a transcript runs in: tables in memory, and a clock that stands still while no command
// runs.
type world struct {
	tables *memory
	env    map[string]string
	clock  time.Time
	answer string // what the person at the terminal types; - : there is no terminal
	code   int
	stop   time.Duration // when the next command is interrupted; 0: not
}

func newWorld() *world {
	return &world{tables: newMemory("leases"), env: map[string]string{"SHARDLEASE_TABLE": "leases", "SHARDLEASE_GROUP": "orders"}, clock: now(), answer: "-"}
}

// seed fills the group of the world.
func (w *world) seed(text string) error {
	at := place{w.env["SHARDLEASE_TABLE"], w.env["SHARDLEASE_GROUP"]}
	w.tables.groups[at] = true
	s := seeder{store: w.tables.all[at.table], group: at.group, now: w.clock}
	return s.run(text)
}

// run runs one command, in a bubble whose clock is that of the world.
func (w *world) run(t *testing.T, out, problems io.Writer, args ...string) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(w.clock))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if w.stop > 0 {
			defer time.AfterFunc(w.stop, cancel).Stop()
		}
		w.exec(ctx, out, problems, args...)
		w.clock = time.Now()
	})
	w.stop = 0
}

// exec runs one command in the bubble of the caller.
func (w *world) exec(ctx context.Context, out, problems io.Writer, args ...string) {
	p := &program{
		in: strings.NewReader(w.answer + "\n"), out: out, problems: problems, now: time.Now,
		operator: "ann@host", terminal: w.answer != "-", tables: w.tables,
		env: func(name string) (string, bool) { value, ok := w.env[name]; return value, ok },
	}
	w.code = p.run(ctx, args)
	w.answer = "-"
}

// output runs one command, and returns what it prints.
func (w *world) output(t *testing.T, args ...string) (out, problems string) {
	t.Helper()
	var o, p bytes.Buffer
	w.run(t, &o, &p, args...)
	return o.String(), p.String()
}

// A shim runs transcripts one after the other, and tells the test that runs one.
type shim struct{ *testing.T }

func (s shim) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(shim{t}) })
}
func (s shim) Parallel()     {}
func (s shim) Verbose() bool { return testing.Verbose() }

// TestTranscripts runs the transcripts in testdata on tables in memory. Besides the commands of testscript
// they have:
//
//	shardlease ARG…           runs the program; ! if it must fail
//	code N                    the last command had the exit code N
//	seed FILE                 makes the transitions in a file; see seeder
//	types TEXT                the next command has a terminal, on which a person types that
//	interrupt DURATION        the next command is interrupted after that time
//	later DURATION            the clock goes on
//	generation SHARD NAME     sets a variable to the present generation of a shard
//	spoil lease NAME|wishes   a record of that kind cannot be read; none: all can be read again
//	fault reads|lost|denied|restored|none
func TestTranscripts(t *testing.T) {
	testscript.RunT(shim{t}, testscript.Params{
		Dir: "testdata", UpdateScripts: os.Getenv("UPDATE_TRANSCRIPTS") != "", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Values["world"], env.Values["t"] = newWorld(), env.T().(shim).T
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"shardlease": func(ts *testscript.TestScript, neg bool, args []string) {
				w := worldOf(ts)
				w.run(ts.Value("t").(*testing.T), ts.Stdout(), ts.Stderr(), args...)
				if neg != (w.code != 0) {
					ts.Fatalf("exit code %d", w.code)
				}
			},
			"code": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := strconv.Itoa(worldOf(ts).code); got != args[0] {
					ts.Fatalf("exit code %s, want %s", got, args[0])
				}
			},
			"seed": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(worldOf(ts).seed(ts.ReadFile(args[0])))
			},
			"set": func(ts *testscript.TestScript, _ bool, args []string) {
				worldOf(ts).env[args[0]] = args[1]
			},
			"types": func(ts *testscript.TestScript, _ bool, args []string) {
				worldOf(ts).answer = args[0]
			},
			"interrupt": func(ts *testscript.TestScript, _ bool, args []string) {
				worldOf(ts).stop = length(ts, args[0])
			},
			"later": func(ts *testscript.TestScript, _ bool, args []string) {
				w := worldOf(ts)
				w.clock = w.clock.Add(length(ts, args[0]))
			},
			"generation": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv(args[1], fmt.Sprint(worldOf(ts).generation(args[0])))
			},
			"spoil": func(ts *testscript.TestScript, _ bool, args []string) {
				w, key := worldOf(ts), lease.Wishes{Group: "orders"}.Key()
				switch args[0] {
				case "lease":
					key = lease.Key{Group: "orders", Kind: lease.KindLease, Name: args[1]}
				case "seat":
					key = lease.Key{Group: "orders", Kind: lease.KindSeat, Name: args[1]}
				}
				if w.tables.spoil(key, true); args[0] == "none" {
					w.tables.spoilt = nil
				}
			},
			"fault": func(ts *testscript.TestScript, _ bool, args []string) {
				w := worldOf(ts)
				w.tables.fault, w.tables.restored = args[0], args[0] == "restored"
			},
		},
	})
}

func worldOf(ts *testscript.TestScript) *world { return ts.Value("world").(*world) }

func length(ts *testscript.TestScript, text string) time.Duration {
	d, err := time.ParseDuration(text)
	ts.Check(err)
	return d
}

// generation returns the present generation of a shard.
func (w *world) generation(shard string) int64 {
	r, err := w.tables.all["leases"].Get(context.Background(), lease.Key{Group: "orders", Kind: lease.KindLease, Name: shard})
	if err != nil {
		return 0
	}
	return r.(lease.Row).Generation
}
