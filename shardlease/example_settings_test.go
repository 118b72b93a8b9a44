package shardlease_test

import (
	"encoding"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
)

// Settings are the fields that operators may set. Their types implement UnmarshalText, so
// gopkg.in/yaml.v3, encoding/json and flag.TextVar can decode them.
type settings struct {
	Handoff rebalance.Terms `yaml:"handoff"` // "eager", "cooperative", or whole terms: "eager 30s wait"
	TTL     duration        `yaml:"ttl"`
	Drain   duration        `yaml:"drain"`
}

// A duration is written as in "15s".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	value, err := time.ParseDuration(string(text))
	*d = duration(value)
	return err
}

// load reads the settings from a file, and then from the environment, which overrides the
// file. The file is flat YAML; a real program uses a library to read it.
func (s *settings) load(file string, lookup func(string) (string, bool)) error {
	text := map[string]string{}
	for line := range strings.Lines(file) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			text[key] = strings.TrimSpace(value)
		}
	}
	var errs []error
	for key, field := range map[string]encoding.TextUnmarshaler{"handoff": &s.Handoff, "ttl": &s.TTL, "drain": &s.Drain} {
		value, set := lookup("ORDERS_" + strings.ToUpper(key))
		if !set {
			value, set = text[key]
		}
		if set {
			if err := field.UnmarshalText([]byte(value)); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", key, err))
			}
		}
	}
	return errors.Join(errs...)
}

// The handoff mode and the durations come from YAML and from the environment.
func Example_settings() {
	const file = `
handoff: eager 30s wait
ttl: 15s
`
	environment := map[string]string{}
	lookup := func(name string) (string, bool) { value, set := environment[name]; return value, set } // os.LookupEnv
	for _, handoff := range []string{"", "cooperative", "fast"} {
		if handoff != "" {
			environment["ORDERS_HANDOFF"] = handoff
		}
		var s settings
		if err := s.load(file, lookup); err != nil {
			fmt.Println(err)
			continue
		}
		_, err := shardlease.New(new(memstore.Store), shardlease.Static("shard-0"), shardlease.Config{
			Group: "orders", Handoff: s.Handoff, TTL: time.Duration(s.TTL), Drain: time.Duration(s.Drain),
		})
		text, _ := s.Handoff.MarshalText()
		fmt.Printf("%s, %v, %v\n", text, time.Duration(s.TTL), err)
	}
	// Output:
	// eager 30s wait default, 15s, <nil>
	// cooperative, 15s, <nil>
	// handoff: choose a handoff mode: "eager" (no overlap: for a moment nobody processes a moving shard) or "cooperative" (usually no gap: for a moment two workers process it, and the late commits of the first are refused); it is "fast"
}
