package run

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// View shows a run as it happens.
type View interface {
	// Past is told, before all else, what earlier processes wrote to the journal.
	Past([]engine.Record)
	// Record is told every record of the journal, once.
	Record(engine.Record)
	// Note is told what a long action waits for.
	Note(string)
	// Say is told what a person must not miss.
	Say(string)
	// Evidence is told, about once a second, what the probes have seen so far.
	Evidence(Seen)
}

// Seen is what the probes have seen so far, counted as gates and the report count it.
type Seen struct {
	Paths int   `json:"paths"`
	Sent  int64 `json:"sent"`
	Lost  int64 `json:"lost"`
	// Excused were not answered while no process ran that could have answered. They are not in Lost.
	Excused int64 `json:"excused,omitempty"`
	Leaked  int64 `json:"leaked"`
	// LongestGapMillis is that of the paths that should answer, in ms.
	LongestGapMillis float64 `json:"longestGapMillis"`
}

func (e Seen) String() string {
	excused := ""
	if e.Excused > 0 {
		excused = fmt.Sprintf(", %d excused", e.Excused)
	}
	return fmt.Sprintf("%s, %s probes, %d lost%s, %d denied answered, longest gap %.0f ms",
		cluster.Count(e.Paths, "path"), cluster.Thousands(e.Sent), e.Lost, excused, e.Leaked, e.LongestGapMillis)
}
