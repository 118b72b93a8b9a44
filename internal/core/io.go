package core

import "github.com/shardlease/shardlease-go/internal/engine"

// The inputs and outputs of the engine. The shell and the virtual world give the inputs to
// Engine.Step, and carry out the outputs.

// The inputs and outputs are those of the present engine, so that the same shell and the same
// virtual world run both.
type (
	Instant = engine.Instant
	Moment  = engine.Moment
	Config  = engine.Config
	Input   = engine.Input
	Output  = engine.Output
	Tenure  = engine.Tenure
	Shard   = engine.Shard
	Status  = engine.Status
	Fault   = engine.Fault

	Tick         = engine.Tick
	Listed       = engine.Listed
	Got          = engine.Got
	Settled      = engine.Settled
	Verified     = engine.Verified
	Source       = engine.Source
	SourceSilent = engine.SourceSilent
	StoreSlow    = engine.StoreSlow
	Marks        = engine.Marks
	Batch        = engine.Batch
	Returned     = engine.Returned
	Prepared     = engine.Prepared
	Stop         = engine.Stop

	List      = engine.List
	Get       = engine.Get
	Send      = engine.Send
	Verify    = engine.Verify
	Poll      = engine.Poll
	Start     = engine.Start
	Drain     = engine.Drain
	Over      = engine.Over
	Committed = engine.Committed
	Prepare   = engine.Prepare
	CallOff   = engine.CallOff
	Tell      = engine.Tell
)

// Never is later than every instant.
const Never = engine.Never
