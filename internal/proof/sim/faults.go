package sim

import "time"

// A Fault is one kind of trouble. The table of kinds describes each.
type Fault uint8

// The faults, in the order of the report.
const (
	Crash Fault = iota
	Stop
	PauseHalf
	PauseEdge
	PauseLong
	PauseVeryLong
	Suspend
	WallJump
	ClockRate
	Lost
	ReplyLost
	Late
	Twin
	LateReply
	Throttled
	ReadLost
	Stale
	ReadsOnly
	WritesOnly
	BeatsOnly
	Outage
	HandlerError
	HandlerPanic
	HandlerStuck
	HandlerDeaf
	HandlerSlow
	HandlerReturn
	HandlerRelease
	PrepareSlow
	PrepareFailed
	PlannerFailed
	RaiseFailed
	RaiseSlow
	RaiseHung
	SourceFault
	SourceLacks
	Split
	Merge
	ModeChange
	ForcedRelease
	Restore
	SkewedRestore
	MalformedRow
	MalformedSeat
	Deploy
	Rebirth
	Advice
	AdviceDeleted
	Wished
	PlannerPaused
	RackCrash
	MalformedPlan
	MalformedTarget
	SickHost
	BusyHost
	Unreachable
	Mistaken
	Meshed
	TargetDown
	faultKinds // how many there are
)

// A kind is one row of the table.
type kind struct {
	name string
	// weight is how many times the kind is in the list from which a fleet's faults are drawn. 0: the kind is not drawn
	// from a list; the network, a handler, a hook or the start of a process draws it.
	weight int
	in     fleets // in which fleets it may happen
	// begin makes the fault happen, if that is possible now. Many faults happen to the node. If there is an end, the fault
	// lasts for the time that begin returns.
	begin func(*faults, Fault, *node) (lasts time.Duration, ok bool)
	// end ends the fault: after its time, or when all trouble ends; nil: the fault ends by itself.
	end func(*faults, *node)
	// alone changes the fleet of the scenario that has only this kind; nil: that fleet needs no change.
	alone func(Fault, *settings, *trouble)
}

// itself is returned by begin if the fault ends by itself, or if begin has arranged its end.
const itself time.Duration = -1

// Fleets is a kind of fleet, by the faults that may happen in it.
type fleets uint8

// The generation of a new row begins with the seconds of the wall clock. In a table that went back in time, only these
// seconds keep a new generation above a lost one. So in such a fleet no clock jumps far, and no name is used again.
const (
	every     fleets = iota
	steady           // the table does not go back
	restored         // the table goes back in time
	skewed           // the table goes back in time, and every wall clock is off
	forgetful        // sources lack shards
	watchful         // workers have a deathwatch
	raising          // handlers change a sink whose fence is raised
)

// kinds is the table of all faults.
func kinds() [faultKinds]kind {
	return [faultKinds]kind{
		Crash:           {"crash", 1, every, endProcess, nil, nil},                               // a process ends without a word; one of the same name comes later
		Stop:            {"stop", 1, every, endProcess, nil, nil},                                // … in good order
		PauseHalf:       {"pause T/2", 1, every, pauseProcess, resumeProcess, nil},               // stopped for T/2
		PauseEdge:       {"pause T±ε", 1, every, pauseProcess, resumeProcess, nil},               // … for T, a moment less or more
		PauseLong:       {"pause 3T", 1, every, pauseProcess, resumeProcess, nil},                // … for 3T
		PauseVeryLong:   {"pause 10T", 1, every, pauseProcess, resumeProcess, nil},               // … for 10T
		Suspend:         {"suspend", 1, every, pauseProcess, resumeProcess, nil},                 // paused, and its monotonic clock with it
		WallJump:        {"wall jump", 1, steady, jumpClock, nil, nil},                           // its wall clock jumps by up to an hour
		ClockRate:       {"clock rate", 0, every, nil, nil, amongCrashes},                        // it starts with a monotonic clock up to 4 % off
		Lost:            {"lost", 0, every, nil, nil, onNetwork},                                 // a request never arrives
		ReplyLost:       {"reply lost", 0, every, nil, nil, onNetwork},                           // served, and the answer never arrives
		Late:            {"late", 0, every, nil, nil, onNetwork},                                 // served long after its sender was told that there is no answer
		Twin:            {"twin", 0, every, nil, nil, onNetwork},                                 // served and answered, and served again later
		LateReply:       {"late reply", 0, every, nil, nil, onNetwork},                           // served at once, answered late
		Throttled:       {"throttled", 0, every, nil, nil, onNetwork},                            // refused without being served
		ReadLost:        {"read lost", 0, every, nil, nil, onNetwork},                            // a read goes unanswered
		Stale:           {"stale list", 0, every, nil, nil, onNetwork},                           // a listing that may lag behind does
		ReadsOnly:       {"reads only", 1, every, block, unblock, nil},                           // for a while, one node cannot write
		WritesOnly:      {"writes only", 1, every, block, unblock, nil},                          // … cannot read
		BeatsOnly:       {"beats only", 1, every, mute, unmute, nil},                             // … gets answers to its heartbeats and to none of its writes of rows
		Outage:          {"outage", 1, every, breakDown, repair, nil},                            // for longer than anybody trusts itself, nobody is answered
		HandlerError:    {"handler error", 0, every, nil, nil, inHandlers},                       // a handler returns an error
		HandlerPanic:    {"handler panic", 0, every, nil, nil, inHandlers},                       // … panics
		HandlerStuck:    {"handler stuck", 0, every, nil, nil, inHandlers},                       // … does nothing any more
		HandlerDeaf:     {"handler deaf", 0, every, nil, nil, inHandlers},                        // … ignores its contexts
		HandlerSlow:     {"handler slow", 0, every, nil, nil, inHandlers},                        // … needs longer to wind down than it has
		HandlerReturn:   {"handler return", 0, every, nil, nil, inHandlers},                      // … returns for no reason
		HandlerRelease:  {"handler release", 0, every, nil, nil, inHandlers},                     // … gives its shard up
		PrepareSlow:     {"prepare slow", 0, every, nil, nil, inHooks},                           // a preparation that takes longer than it may
		PrepareFailed:   {"prepare failed", 0, every, nil, nil, inHooks},                         // … fails
		PlannerFailed:   {"planner failed", 0, every, nil, nil, inHooks},                         // the user's planner fails, or gives no plan in time
		RaiseFailed:     {"raise failed", 0, every, nil, nil, inHooks},                           // a raise of the fence of a sink fails
		RaiseSlow:       {"raise slow", 0, every, nil, nil, inHooks},                             // … takes longer than a heartbeat interval
		RaiseHung:       {"raise hung", 0, every, nil, nil, inHooks},                             // … is not answered, and arrives later
		SourceFault:     {"source fault", 0, every, nil, nil, inHooks},                           // a listing of the source fails, or is a part
		SourceLacks:     {"source lacks", 1, forgetful, lackShards, listAll, nil},                // for a while, the source of one node lacks shards and calls its listing complete
		Split:           {"split", 1, every, reshard, nil, nil},                                  // a shard ends, and two follow
		Merge:           {"merge", 1, every, reshard, nil, nil},                                  // two shards end, and one follows
		ModeChange:      {"mode change", 1, every, endProcess, nil, nil},                         // a worker comes back with another strategy
		ForcedRelease:   {"forced release", 1, every, forceRelease, nil, nil},                    // a supervisor takes a shard away
		Restore:         {"restore", 2, restored, goBack, adoptTable, nil},                       // the table goes back in time
		SkewedRestore:   {"restore, clocks off", 3, skewed, goBack, adoptTable, amongResharding}, // … and then every wall clock is off
		MalformedRow:    {"malformed row", 1, every, spoil, mendAll, amongResharding},            // a row cannot be read for a while
		MalformedSeat:   {"malformed seat", 1, every, spoil, mendAll, nil},                       // … a seat
		Deploy:          {"deploy", 1, every, replaceAll, nil, nil},                              // one worker after another is replaced
		Rebirth:         {"rebirth", 2, steady, useNameAgain, nil, withNames},                    // the name of a removed shard is used again
		Advice:          {"advice", 1, every, misadvise, nil, nil},                               // a plan and targets are written that no planner would write
		AdviceDeleted:   {"advice deleted", 1, every, deleteAdvice, nil, nil},                    // the plan or targets are deleted by hand
		Wished:          {"wished", 1, every, makeWishes, liftWishes, nil},                       // an operator cordons and drains workers, pauses moves and pins shards, for a while
		PlannerPaused:   {"planner paused", 1, every, pausePlanner, letPlan, amongResharding},    // a worker is stopped for 2T while it writes a plan
		RackCrash:       {"rack crash", 1, every, endWatchers, nil, nil},                         // all watchers end at once without a word
		MalformedPlan:   {"malformed plan", 1, every, spoil, mendAll, amongResharding},           // the plan cannot be read for a while
		MalformedTarget: {"malformed target", 1, every, spoil, mendAll, amongResharding},         // a target cannot be read for a while
		SickHost:        {"sick host", 0, every, nil, nil, onHosts},                              // a process starts in which every handler fails, hangs or marks nothing
		BusyHost:        {"busy host", 0, every, nil, nil, onHosts},                              // a process starts in which every step takes a while, so that inputs queue
		Unreachable:     {"unreachable", 1, watchful, misreport, tellTruth, nil},                 // for a while, one node's address does not answer
		Mistaken:        {"mistaken", 1, watchful, misreport, tellTruth, nil},                    // for a while, the address of a node that lives refuses connections, or another incarnation answers there
		Meshed:          {"meshed", 1, watchful, mesh, unmesh, nil},                              // for a while, the sidecar of one node refuses all connections that the node makes
		TargetDown:      {"target down", 1, raising, breakTarget, mendTarget, withTargets},       // for a while, one node or all cannot raise the fence of the sink
	}
}

func (f Fault) String() string {
	if f >= faultKinds {
		return "?"
	}
	return kinds()[f].name
}

// those lists the kinds of some fleets. Each is in the list as many times as its weight says.
func those(in fleets) (list []Fault) {
	for f, k := range kinds() {
		for range k.weight {
			if k.in == in {
				list = append(list, Fault(f))
			}
		}
	}
	return list
}
