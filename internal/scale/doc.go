// Package scale measures what large fleets ask of a table: 10,000 shards on 100
// workers, and more. Real engines run in virtual time on one goroutine, against a
// table that has no content of its own but limits: it counts what every request
// costs, refuses what a partition cannot take, and says what came of it second by
// second. Nothing is checked here but figures; what is right is checked in
// internal/sim.
//
// The table (table_test.go) is DynamoDB as it is documented, on demand:
//
//   - A partition takes 1,000 write units and 3,000 read units a second, reads and
//     writes counted apart. All lease rows of a group have one partition key, and so
//     have its seats: two partitions. DynamoDB splits a partition that is hot for
//     long along the sort key; -scale.ranges says into how many parts the lease rows
//     are split already. The default is 1, the worst case.
//   - A new table takes 4,000 write units and 12,000 read units a second, and no table
//     more than 40,000 of each, unless that is raised.
//   - A write costs a unit for every started kilobyte of the larger of the images before
//     and after, also where its condition fails. A consistent Get costs a unit for every
//     started 4 KB; a page of a Query one for every started 4 KB of all its items
//     together, and half of that where it may lag behind. A page has 1 MB at most.
//   - What is over the limit is refused: the request has to be sent again.
//
// Not modelled, for it is promised nowhere or only once: the unused capacity of five
// minutes that may be lent to a burst, partitions that split while a story runs, and how
// far an eventually consistent read lags behind.
//
// The client (client_test.go) is dynamostore and the shell of shardlease: the lane for
// calls about lease rows, up to sixteen at a time, seats beside it, the limit of each call,
// and how a refused or unanswered request is sent again. Rows and seats are as large as their
// codec makes them, names have 40 bytes, positions 56, and every row has a past.
package scale
