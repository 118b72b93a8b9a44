package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// completionTime bounds how long the completion of a name may read the table: a person waits.
const completionTime = 2 * time.Second

// Names returns names of a group that a person may type.
type names func(*inspect.Snapshot) []string

// completeArgs completes the first argument with the first names, and so on. A table that cannot be
// read, or not in time, completes nothing.
func (r *reader) completeArgs(of ...names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(of) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return r.completions(cmd, of[len(args)], typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes the value of a flag.
func (r *reader) completeFlag(c *cobra.Command, flag string, of names) {
	// It fails only if there is no such flag.
	_ = c.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return r.completions(cmd, of, typed), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeFlagWith completes the value of a flag with fixed words.
func completeFlagWith(c *cobra.Command, flag string, words ...string) {
	// It fails only if there is no such flag.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

func (r *reader) completions(cmd *cobra.Command, of names, typed string) (list []cobra.Completion) {
	if r.env.setFlags(cmd) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	s, err := r.look(ctx)
	if err != nil {
		s = &inspect.Snapshot{}
	}
	for _, name := range of(s) {
		// A line is one name, and the shell gets it: nothing in it may look like another line.
		if name = clean(name); strings.HasPrefix(name, typed) {
			list = append(list, name)
		}
	}
	return list
}

func shardNames(s *inspect.Snapshot) (list []string) {
	for i := range s.Shards {
		list = append(list, s.Shards[i].Name)
	}
	return list
}

func workerNames(s *inspect.Snapshot) (list []string) {
	for i := range s.Workers {
		list = append(list, s.Workers[i].Seat.Name)
	}
	return slices.Compact(list) // they are sorted
}

func taskNames(s *inspect.Snapshot) (list []string) {
	for i := range s.Workers {
		if task := s.Workers[i].Seat.Task; task != "" {
			list = append(list, task)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// wishKinds returns the kinds of wish that a person can lift.
func wishKinds(*inspect.Snapshot) (list []string) {
	for _, kind := range lease.WishKinds() {
		list = append(list, string(kind))
	}
	slices.Sort(list)
	return append(list, string(everyWish))
}

func wishSubjects(s *inspect.Snapshot) (list []string) {
	for _, w := range s.Wishes {
		if w.Subject != "" {
			list = append(list, w.Subject)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
