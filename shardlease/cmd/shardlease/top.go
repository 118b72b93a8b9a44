package main

import (
	"context"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// The command top: a full screen that follows a group.
//
//	top.go       the command, and the two goroutines that send messages to the program
//	picture.go   the results of all reads of the group so far
//	listings.go  the four views: columns, rows, sort orders
//	list.go      which rows of a view are on the screen: filter, order, cursor
//	room.go      which columns fit, and how wide they are
//	topic.go     every field of one row
//	keys.go      Update: what a key does
//	screen.go    View: the lines of the screen; head.go has the lines above the list
//	palette.go   colours, and texts that fit
//
// A look is one read of the group by inspect.Watch. Update and View are pure: looks, the time, keys and sizes arrive as
// messages.

// defaultRowsEvery is how often top reads all rows at least. It reads the seats, which show most changes, every two
// seconds.
const defaultRowsEvery = 10 * time.Second

// A display shows the group that it reads on a full screen.
type display struct {
	*reader
	in  io.Reader
	out io.Writer
}

func (d *display) topCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "top", Short: "Shows the group on a full screen that follows it", Args: arguments,
		Long: `Shows the shards, the workers, the warnings and the changes of the group on a full screen, and follows the
group until you press q. The key ? lists the other keys. The command writes nothing to the table, and needs
the permissions of an observer. If the table does not answer, the last picture stays, with its age.

The command reads the seats every two seconds. It reads all rows when the seats show a change, and at least
every --rows-every. The screen shows how many read units this has cost. NO_COLOR=1 turns the colours off.

The command needs a terminal. In a script use 'shardlease ls', 'shardlease check' or
'shardlease events --follow'.`,
		Example: "  shardlease top\n  shardlease top --group orders --rows-every 30s",
	}
	every := c.Flags().Duration("rows-every", defaultRowsEvery, "how often all rows are read at least; 2s or more")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		if err := d.at.needsGroup(); err != nil {
			return err
		}
		if *every < 2*time.Second {
			return usage("--rows-every must be at least 2s")
		}
		if !isTerminal(d.in) || !isTerminal(d.out) {
			return usage("top needs a terminal as its standard input and output: in a script use 'shardlease ls', 'shardlease check' or 'shardlease events --follow'")
		}
		from, err := d.tables.Reader(ctx, *d.at)
		if err != nil {
			return err
		}
		return d.show(ctx, from, *every)
	})
	return c
}

// show shows the group until the person quits or ctx ends; neither is an error. It returns when both goroutines that it
// starts have ended.
func (d *display) show(ctx context.Context, from inspect.Lister, rowsEvery time.Duration, options ...tea.ProgramOption) error {
	noColor, _ := d.env("NO_COLOR")
	options = append([]tea.ProgramOption{tea.WithoutSignalHandler(), tea.WithInput(d.in), tea.WithOutput(d.out)}, options...)
	screen := tea.NewProgram(newModel(*d.at, palette{color: noColor == ""}, d.now()), options...)
	// Not tea.WithContext: it kills the program when ctx ends, and a killed program does not wait for the goroutine that
	// reads keys.
	defer context.AfterFunc(ctx, screen.Quit)()
	within, stop := context.WithCancel(ctx)
	defer stop()
	var senders sync.WaitGroup
	senders.Go(func() { d.sendLooks(within, from, rowsEvery, screen.Send) })
	senders.Go(func() { d.sendTime(within, screen.Send) })
	_, err := screen.Run()
	stop()
	senders.Wait()
	return err
}

// A look is the message that inspect.Watch has read the group once, or has failed to.
type look struct {
	snapshot *inspect.Snapshot
	err      error // why there is no snapshot
	at       time.Time
}

// sendLooks sends each look of a watch until ctx ends.
func (d *display) sendLooks(ctx context.Context, from inspect.Lister, rowsEvery time.Duration, send func(tea.Msg)) {
	o := inspect.WatchOptions{Options: inspect.Options{Now: d.now, Ends: -1}, RowsEvery: rowsEvery}
	for s, err := range inspect.Watch(ctx, from, d.at.group, o) {
		send(look{s, err, d.now()})
	}
}

// A clock is the message that contains the present time.
type clock time.Time

// sendTime sends the time every second until ctx ends, so that the age of the picture grows while no look ends.
func (d *display) sendTime(ctx context.Context, send func(tea.Msg)) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			send(clock(d.now()))
		}
	}
}
