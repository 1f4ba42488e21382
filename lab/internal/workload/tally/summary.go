package tally

import (
	"fmt"
	"io"
	"sort"
	"text/tabwriter"
	"time"
)

// Summary has the counts of one driver, or the sum of several.
type Summary struct {
	Pod     string           `json:"pod,omitempty"`
	Node    string           `json:"node,omitempty"`
	Started time.Time        `json:"started"`
	Updated time.Time        `json:"updated"`
	Final   bool             `json:"final"` // nothing more will be counted
	Stalls  Stalls           `json:"stalls"`
	Kinds   map[string]Count `json:"kinds"`
}

// Stalls are the times in which a driver did not run although it wanted to: the machine was too busy.
// Requests around a stall say little about the network.
type Stalls struct {
	Number    int       `json:"number"`
	Total     millis    `json:"totalMs"`
	Longest   millis    `json:"longestMs"`
	LongestAt time.Time `json:"longestAt,omitzero"`
}

func (s *Stalls) add(o Stalls) {
	s.Number += o.Number
	s.Total += o.Total
	if o.Longest > s.Longest {
		s.Longest, s.LongestAt = o.Longest, o.LongestAt
	}
}

// Sum adds up several summaries. It is final if all are.
func Sum(all []Summary) Summary {
	sum := Summary{Kinds: map[string]Count{}, Final: len(all) > 0}
	for _, s := range all {
		if sum.Started.IsZero() || s.Started.Before(sum.Started) {
			sum.Started = s.Started
		}
		if s.Updated.After(sum.Updated) {
			sum.Updated = s.Updated
		}
		sum.Final = sum.Final && s.Final
		sum.Stalls.add(s.Stalls)
		for kind, count := range s.Kinds {
			sum.Kinds[kind] = Merge(sum.Kinds[kind], count)
		}
	}
	return sum
}

// Failed is how many requests failed; for a path that is to be denied, how many got through.
func (s Summary) Failed() (failed uint64) {
	for _, c := range s.Kinds {
		failed += c.Failed
	}
	return failed
}

// Sent is how many requests were sent and counted.
func (s Summary) Sent() (sent uint64) {
	for _, c := range s.Kinds {
		sent += c.Sent
	}
	return sent
}

// Print writes the summary as a table for people.
func (s Summary) Print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "kind\tsent\tfailed\tlate\tlongest gap ms\tp50 ms\tp99 ms\tslowest ms\t")
	var kinds []string
	for kind := range s.Kinds {
		kinds = append(kinds, kind)
	}
	sort.Strings(kinds)
	for _, kind := range kinds {
		c := s.Kinds[kind]
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%.0f\t%.1f\t%.1f\t%.0f\t\n",
			kind, c.Sent, c.Failed, c.Late, c.LongestGap, c.P50, c.P99, c.Slowest)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if s.Stalls.Number > 0 {
		fmt.Fprintf(w, "the clients themselves were held up %d times, %.0f ms in all, %.0f ms at most\n",
			s.Stalls.Number, s.Stalls.Total, s.Stalls.Longest)
	}
	for _, kind := range kinds {
		for _, e := range s.Kinds[kind].Errors {
			if _, err := fmt.Fprintf(w, "%s %s %s: after %.0f ms: %s\n", e.At.Format("15:04:05.000"), kind, e.Target,
				e.After, e.Message); err != nil {
				return err
			}
		}
	}
	return nil
}
