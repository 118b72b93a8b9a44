// Package scale measures the load of large fleets on a table: 10,000 shards on 100 workers,
// and more. Real engines run in virtual time on one goroutine. Their table has the limits
// of DynamoDB: it counts the cost of every request, refuses what exceeds the capacity of a
// partition, and records the load over time. This package checks figures only; internal/proof/sim
// checks correctness.
//
// The table (table_test.go) is DynamoDB as documented, on demand:
//
//   - A partition can serve 1,000 write units and 3,000 read units per second, counted
//     separately. The seats of a group are one partition, and so are its targets. The lease
//     rows are in as many as the group has buckets; -scale.buckets sets the number.
//   - A new table can serve 4,000 write units and 12,000 read units per second, and no
//     table more than 40,000 of each, unless that limit is raised. A table for more than four
//     buckets was created with the throughput for them.
//   - A write costs a unit for every started kilobyte of the larger of the images before
//     and after, also if its condition fails. A consistent Get costs a unit for every
//     started 4 KB. A page of a Query costs a unit for every started 4 KB of all its items
//     together, or half of that if it is eventually consistent. A page has at most 1 MB.
//   - Requests over the limit are refused, and must be sent again.
//
// Some behaviour is not modelled, because it is not promised or happens only once: the
// unused capacity of five minutes that a burst may use, partitions that split during a
// story, and how far an eventually consistent read lags behind.
//
// The client (client_test.go) behaves like dynamostore and the shell of shardlease: it has
// a lane for up to sixteen concurrent calls about lease rows, calls about seats outside of
// it, a time limit for each call, and pauses before refused or unanswered requests are sent
// again. Rows and seats have their encoded sizes, names have 40 bytes, positions 56, and
// every row has a history of transfers.
//
// The processor (processor_test.go) is shared by all workers of a fleet that is one process on a slow
// machine. Requests, records and steps then take its time, and everything waits for it in the order in
// which it was ready, heartbeats too. In the other fleets nothing takes processor time.
package scale
