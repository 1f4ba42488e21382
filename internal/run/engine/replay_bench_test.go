package engine

import (
	"fmt"
	"testing"
)

// BenchmarkReplay replays a step with an action for each of so many nodes. The time of an action does not depend on how
// many there are.
func BenchmarkReplay(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		records := []Record{{Event: Started, Data: []byte(`{"plan":"h"}`)}, {Event: StepBegan, Step: "s"}}
		for i := range nodes {
			id := fmt.Sprintf("s/%d", i+1)
			records = append(records, Record{Event: Intended, Step: "s", Action: id},
				Record{Event: Acted, Step: "s", Action: id, Result: ResultDone})
		}
		for i := range records {
			records[i].Seq = i + 1
		}
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			for b.Loop() {
				if _, err := Replay(records); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*nodes), "ns/action")
		})
	}
}
