package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Orders are the flags of a command that writes.
type orders struct {
	by, why    string
	needsWhy   bool
	yes        bool
	noDelay    bool
	generation int64
}

// An operator changes the group that it reads, if a person or the flags agree.
type operator struct {
	*reader
	in            io.Reader
	out, problems io.Writer
	terminal      bool   // a person can read the questions and answer them
	name          string // the default of --by
}

// orderFlags adds the flags of a command that writes. Where no reason is needed one may be given for the journal, so that a
// script can give one to every command.
func (op *operator) orderFlags(c *cobra.Command, needsWhy bool) *orders {
	o := &orders{needsWhy: needsWhy}
	c.Flags().StringVar(&o.by, "by", op.name, "the `NAME` of the operator, which is stored with the change")
	about := "the `REASON`, which the journal stores"
	if needsWhy {
		about = "the `REASON`, which is stored with the change; required"
	}
	c.Flags().StringVar(&o.why, "why", "", about)
	c.Flags().BoolVar(&o.yes, "yes", false, "do not ask; required without a terminal")
	return o
}

// delayFlag adds the flag of a command that takes shards from their owners.
func (o *orders) delayFlag(c *cobra.Command) {
	c.Flags().BoolVar(&o.noDelay, "no-delay", false, "of leases by name: leave no lock delay, because the holder is known to be dead")
}

// shardFlags adds the flags of a command that changes a lease row.
func (op *operator) shardFlags(c *cobra.Command) *orders {
	o := op.orderFlags(c, true)
	c.Flags().Int64Var(&o.generation, "generation", 0, "the generation `N` that you have seen; the command is refused if the shard has changed hands since; required with --yes")
	return o
}

// check reports flags that are missing, before anything is read. A row needs a generation where no
// person looks at it.
func (op *operator) check(o *orders, isRow bool) error {
	switch {
	case o.needsWhy && strings.TrimSpace(o.why) == "":
		return usage("needs --why: the reason is stored with the change")
	case o.by == "":
		return usage("needs --by: the name is stored with the change")
	case o.generation < 0:
		return usage("--generation must not be negative")
	case !op.terminal && !o.yes && isRow:
		return usage("without a terminal this command needs --generation N and --yes; 'shardlease get' shows the generation")
	case !op.terminal && !o.yes:
		return usage("without a terminal this command needs --yes")
	case o.yes && isRow && o.generation == 0:
		return usage("--yes needs --generation N, as 'shardlease get' shows it: nobody looks at the row")
	}
	return op.at.needsGroup()
}

// errDeclined means that the person at the terminal did not confirm.
var errDeclined = errors.New("not confirmed: nothing was written")

// confirm asks a person to type a word, unless --yes is set. An interruption ends the question.
func (op *operator) confirm(ctx context.Context, o *orders, word, question string) error {
	if o.yes {
		return nil
	}
	fmt.Fprintf(op.problems, "%s Type %s to continue: ", clean(question), quoted(word))
	typed := make(chan string, 1)
	go func() { // it stays behind if the person never answers: a read of a terminal cannot be interrupted
		answer, _ := bufio.NewReader(op.in).ReadString('\n')
		typed <- answer
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(op.problems)
		return context.Cause(ctx)
	case answer := <-typed:
		if answer == "" || strings.TrimRight(answer, "\r\n") != word {
			return errDeclined
		}
		return nil
	}
}
