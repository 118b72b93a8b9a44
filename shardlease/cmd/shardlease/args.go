package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// arguments checks the number of arguments against the names in the first line of the help, of which those
// in brackets may be left out. Its error names what is missing.
func arguments(c *cobra.Command, args []string) error {
	names := strings.Fields(c.Use)[1:]
	for i, name := range names {
		if i >= len(args) && !strings.HasPrefix(name, "[") {
			return usage("needs %s", strings.Join(names[i:], " "))
		}
	}
	if len(args) > len(names) {
		return usage("unexpected argument %s", quoted(args[len(names)]))
	}
	return nil
}
