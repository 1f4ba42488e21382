package bench

import (
	"fmt"
	"reflect"
)

// Merge adds the runs of another result of the same load to a result. Its runs get the numbers after those that are
// there.
func (r *Result) Merge(other *Result) error {
	if err := r.SameLoad(other); err != nil {
		return err
	}
	last := 0
	for _, s := range r.Samples {
		last = max(last, s.Run)
	}
	for _, s := range other.Samples {
		s.Run += last
		r.Samples = append(r.Samples, s)
	}
	if r.Stopped == "" {
		r.Stopped, r.Harmed = other.Stopped, other.Harmed
	}
	r.Rows = Rows(r.Tasks, r.Samples)
	return nil
}

// SameLoad refuses results of another load: their figures cannot be compared. How often it was repeated, and when it
// would have been stopped, may differ.
func (r *Result) SameLoad(other *Result) error {
	mine, its := r.Bounds, other.Bounds
	for _, b := range []*Bounds{&mine, &its} {
		b.Runs, b.MaxRoundTrip, b.LinkShare, b.CPUShare, b.KeepGoing = 0, 0, 0, 0, false
		if len(b.PolicyRules) == 0 {
			b.PolicyRules = nil
		}
	}
	if !reflect.DeepEqual(mine, its) {
		return fmt.Errorf("the load differs from the first file's: --duration %s, --rate %d, --throughput %d, "+
			"--policy-rules %v; the first has %s, %d, %d, %v", its.Duration, its.Rate, its.Megabits, its.PolicyRules,
			mine.Duration, mine.Rate, mine.Megabits, mine.PolicyRules)
	}
	if len(r.Tasks) != len(other.Tasks) {
		return fmt.Errorf("it has %d measurements, the first file has %d: one benchmark used one node, the other two",
			len(other.Tasks), len(r.Tasks))
	}
	for i, task := range other.Tasks {
		if task.Path != r.Tasks[i].Path || task.Name() != r.Tasks[i].Name() {
			return fmt.Errorf("its measurement %d is %s, %s, and not %s, %s", i+1, task.Path, task.Name(),
				r.Tasks[i].Path, r.Tasks[i].Name())
		}
	}
	return nil
}
