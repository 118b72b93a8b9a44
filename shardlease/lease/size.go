package lease

import (
	"strconv"
	"strings"
)

// Size returns the size of the item as DynamoDB counts it, in bytes: the length of every name
// and value; for a number one byte for every two significant digits, one more, and one for a
// minus; for a boolean one; for a set three, and one for each of its elements.
func (item Item) Size() int {
	size := 0
	for name, value := range item {
		size += len(name) + sizeOf(value)
	}
	return size
}

func sizeOf(value any) int {
	switch v := value.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	case []string:
		size := 3
		for _, element := range v {
			size += len(element) + 1
		}
		return size
	case int64:
		digits := strings.TrimRight(strings.TrimPrefix(strconv.FormatInt(v, 10), "-"), "0")
		size := (len(digits)+1)/2 + 1
		if v < 0 {
			size++
		}
		return size
	}
	return 1
}
