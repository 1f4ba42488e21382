package run

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// View shows a run as it happens.
type View interface {
	// Past gets, before all else, the records that earlier processes wrote to the journal.
	Past([]engine.Record)
	// Record gets every record of the journal, once.
	Record(engine.Record)
	// Note gets what a long action waits for.
	Note(string)
	// Say gets messages that a person must not miss.
	Say(string)
	// Output gets a line of the output of a command of the user.
	Output(string)
	// Evidence gets, about once a second, the probes' results so far.
	Evidence(Seen)
}

// Seen are the probes' results so far, counted as gates and the report count them.
type Seen struct {
	Paths int   `json:"paths"`
	Sent  int64 `json:"sent"`
	Lost  int64 `json:"lost"`
	// Excused were unanswered while all possible responders were stalled. They are not in Lost.
	Excused int64 `json:"excused,omitempty"`
	Leaked  int64 `json:"leaked"`
	// LongestGapMillis is the longest gap of the paths that should answer, in ms.
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
