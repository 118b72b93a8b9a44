package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// The formats of results.
const (
	asTable      = "table"
	asWide       = "wide"
	asJSON       = "json"
	asLines      = "jsonl"
	asYAML       = "yaml"
	asNames      = "name"
	asPrometheus = "prometheus"
)

// formatVersion is the version of JSON and YAML. It grows when a field changes its meaning or goes, and
// not when one is added.
const formatVersion = 1

// A format is the flag -o. It accepts only the formats of its command, before anything is read.
type format struct {
	name string
	may  []string
}

func (f *format) String() string { return f.name }

// Type returns what the help calls the value.
func (f *format) Type() string { return "FORMAT" }

// Set implements pflag.Value.
func (f *format) Set(name string) error {
	if !slices.Contains(f.may, name) {
		return fmt.Errorf("the format must be %s", either(f.may))
	}
	f.name = name
	return nil
}

// either joins names in a sentence.
func either(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// formatFlag adds the flag -o. The first format is the default.
func formatFlag(cmd *cobra.Command, may ...string) *format {
	f := &format{name: may[0], may: may}
	cmd.Flags().VarP(f, "output", "o", "the format: "+either(may))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(may, cobra.ShellCompDirectiveNoFileComp)) // fails only without the flag
	return f
}

// allFormats are the formats of a listing.
func allFormats() []string {
	return []string{asTable, asWide, asJSON, asLines, asYAML, asNames}
}

// positionsFlag adds the flag --positions.
func positionsFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("positions", false, "also print the positions and states of checkpoints, which are user data")
}

// A result is what a looking command prints.
type result struct {
	kind  string // of the whole; a list has the plural
	item  string // the kind of one item; empty: the result is no list
	head  any    // the fields of the whole: a struct, or nil
	items []any  // the items of a list
	names []string
	grid  grid
	more  []grid // tables below
}

// print prints the result in a format.
func (r *result) print(out io.Writer, f *format) error {
	switch f.name {
	case asNames:
		return printNames(out, r.names)
	case asLines:
		return r.printLines(out)
	case asJSON, asYAML:
		return r.printDocument(out, f.name == asYAML)
	}
	if err := r.grid.print(out, f.name == asWide); err != nil {
		return err
	}
	for _, g := range r.more {
		fmt.Fprintln(out)
		if err := g.print(out, f.name == asWide); err != nil {
			return err
		}
	}
	return nil
}

func printNames(out io.Writer, names []string) error {
	var b strings.Builder
	for _, name := range names {
		b.WriteString(clean(name) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// printLines prints a line of JSON for each item, or one for the whole.
func (r *result) printLines(out io.Writer) error {
	if r.item == "" {
		return writeLine(out, r.kind, r.head)
	}
	for _, item := range r.items {
		if err := writeLine(out, r.item, item); err != nil {
			return err
		}
	}
	return nil
}

// writeLine prints one line of JSON.
func writeLine(out io.Writer, kind string, of any) error {
	text, err := versioned(kind, of)
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

func (r *result) printDocument(out io.Writer, inYAML bool) error {
	text, err := versioned(r.kind, r.head)
	if err == nil && r.item != "" {
		text, err = joined(text, struct {
			Items []any `json:"items"`
		}{append([]any{}, r.items...)})
	}
	if err != nil {
		return err
	}
	var document bytes.Buffer
	if inYAML {
		text, err = toYAML(text)
		document.Write(text)
	} else {
		err = json.Indent(&document, text, "", "  ")
		document.WriteByte('\n')
	}
	if err != nil {
		return err
	}
	_, err = out.Write(document.Bytes())
	return err
}

// toYAML returns a JSON document as YAML. All strings are quoted: what stands in a name must not
// become a number, a comment or a key.
func toYAML(document []byte) ([]byte, error) {
	var fields any
	if err := yaml.UnmarshalWithOptions(document, &fields, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	return yaml.MarshalWithOptions(fields, yaml.CustomMarshaler[string](func(s string) ([]byte, error) {
		return []byte(strconv.Quote(s)), nil
	}))
}

// versioned returns a value as a JSON object that begins with its version and kind.
func versioned(kind string, of any) ([]byte, error) {
	text, err := json.Marshal(struct {
		Version int    `json:"version"`
		Kind    string `json:"kind"`
	}{formatVersion, kind})
	if err != nil || of == nil {
		return text, err
	}
	return joined(text, of)
}

// joined adds the fields of a value to a JSON object.
func joined(object []byte, of any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(of); err != nil {
		return nil, err
	}
	more := bytes.TrimSpace(b.Bytes())
	if len(more) <= len("{}") {
		return object, nil
	}
	return append(append(bytes.TrimSuffix(object, []byte("}")), ','), ascii(more[1:])...), nil
}

// ascii escapes the characters that could change a terminal. In JSON they only occur within strings.
func ascii(text []byte) []byte {
	if !bytes.ContainsFunc(text, isUnsafe) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if !isUnsafe(r) {
			b.WriteRune(r)
			continue
		}
		for _, half := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, half)
		}
	}
	return b.Bytes()
}

// seconds returns a duration as JSON has it, to the millisecond. Seconds() would return 1.7469999999999999 for 1.747 s.
func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}

// stamp returns a time as JSON has it, or nil.
func stamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}
