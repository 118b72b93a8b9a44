// Config shows how to choose the handoff mode in a configuration file, in an environment
// variable that overrides the file, or by a flag that overrides both. All three accept the
// same text: "eager", "cooperative" or whole terms such as "eager 30s wait", because
// rebalance.Terms implements encoding.TextUnmarshaler and TextMarshaler.
//
//	go run ./examples/config -config examples/config/config.json
//	SHARDLEASE_HANDOFF=cooperative go run ./examples/config -config examples/config/config.json
//	go run ./examples/config -config examples/config/config.json -handoff 'eager 30s wait'
//
// There is no default. If no mode is chosen, the error explains the choice:
//
//	go run ./examples/config
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
)

func main() {
	if err := run(os.Args[1:], os.LookupEnv, os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Settings are the part of this program's configuration file that configures shardlease.
type settings struct {
	Group   string          `json:"group"`
	Handoff rebalance.Terms `json:"handoff"`
	TTL     duration        `json:"ttl"`
}

// A duration is a time.Duration whose text is like "15s".
type duration time.Duration

// UnmarshalText reads a duration.
func (d *duration) UnmarshalText(text []byte) error {
	value, err := time.ParseDuration(string(text))
	*d = duration(value)
	return err
}

func run(args []string, environment func(string) (string, bool), out io.Writer) error {
	var flagged rebalance.Terms // zero: the flag is not set
	f := flag.NewFlagSet("config", flag.ContinueOnError)
	f.SetOutput(out)
	file := f.String("config", "", "the configuration file")
	f.TextVar(&flagged, "handoff", flagged, `"eager", "cooperative" or whole terms`)
	if err := f.Parse(args); err != nil {
		return err
	}
	s := settings{Group: "orders"}
	from, err := s.load(*file, environment, flagged)
	if err != nil {
		return err
	}
	// New reports all errors of a configuration at once.
	_, err = shardlease.New(new(memstore.Store), shardlease.Static("shard-0"), shardlease.Config{
		Group: s.Group, Handoff: s.Handoff, TTL: time.Duration(s.TTL),
	})
	if err != nil {
		return err
	}
	text, err := s.Handoff.MarshalText()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "handoff: %s, chosen %s\n", text, from)
	return err
}

// load reads the three sources, each of which overrides the one before, and returns where the
// terms were chosen.
func (s *settings) load(file string, environment func(string) (string, bool), flagged rebalance.Terms) (from string, err error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if err := json.Unmarshal(text, s); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		from = "in the file " + file
	}
	const variable = "SHARDLEASE_HANDOFF"
	if text, set := environment(variable); set { // os.LookupEnv
		if err := s.Handoff.UnmarshalText([]byte(text)); err != nil {
			return "", fmt.Errorf("%s: %w", variable, err)
		}
		from = "in the environment, by " + variable
	}
	if flagged != (rebalance.Terms{}) {
		s.Handoff, from = flagged, "by the flag -handoff"
	}
	return from, nil
}
