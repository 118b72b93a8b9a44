package inspect

// EndsHours returns of how many hours an Observer remembers the counts of ends.
func (o *Observer) EndsHours() int { return len(o.ends.hours) }
