package spec

import "fmt"

// Count counts things: "1 node", "2 nodes".
func Count[N int | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
