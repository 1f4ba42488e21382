package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// Move is one running pod that was moved from one network to another.
type Move struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
	// Network is the pod's network since At, by its name in the plan; Back is true if a rollback moved it.
	Network string    `json:"network"`
	At      time.Time `json:"at,omitzero"`
	Step    string    `json:"step"`
	Back    bool      `json:"back,omitempty"`
	// Begin is when its traffic was held on the old network, End when it was on the new one only.
	Begin time.Time `json:"begin,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// FlipMicros is how long the kernel worked at the flip, in µs.
	FlipMicros int64 `json:"flipMicros"`
	// Sent and Lost count the datagrams from the pod to its node and back; Sent is 0 if nothing was measured. Gaps are
	// times between two answers in ms: around the flip, the longest while the pod moved, and the longest just before.
	Sent          int     `json:"sent"`
	Lost          int     `json:"lost"`
	FlipGapMillis float64 `json:"flipGapMillis"`
	LongestMillis float64 `json:"longestMillis"`
	ControlMillis float64 `json:"controlMillis"`
}

// Adopted sums up moves.
type Adopted struct {
	// Pods counts moves to the target; of these, Own are of Theseus' probe pods, and Later of pods that are not in the
	// plan because they started after it was made (such as pods of the target). Back counts moves of a rollback,
	// Measured those with figures.
	Pods     int   `json:"pods"`
	Own      int   `json:"own"`
	Later    int   `json:"later"`
	Back     int   `json:"back"`
	Measured int   `json:"measured"`
	Sent     int64 `json:"sent"`
	Lost     int64 `json:"lost"`
	// Each is the median, the p99 and the maximum over the moves, as in Move.
	FlipMicros    [3]int64   `json:"flipMicros"`
	FlipGapMillis [3]float64 `json:"flipGapMillis"`
	LongestMillis [3]float64 `json:"longestMillis"`
	ControlMillis [3]float64 `json:"controlMillis"`
}

// lost counts the datagrams that moved pods lost; 0 if no pod was moved.
func (a *Adopted) lost() int64 {
	if a == nil {
		return 0
	}
	return a.Lost
}

// moves reads the agents' answers about moved pods from the journal.
func moves(p *plan.Plan, records []engine.Record) []Move {
	if p == nil {
		return nil
	}
	asked := map[string]bool{}
	for i := range p.Steps {
		for _, action := range slices.Concat(p.Steps[i].Actions, p.Steps[i].Undo) {
			asked[action.ID] = action.Verb() == step.VerbAdopt
		}
	}
	planned := map[string]bool{}
	for _, w := range p.Workloads {
		for _, names := range w.Pods {
			for _, name := range names {
				planned[w.Namespace+"/"+name] = true
			}
		}
	}
	type once struct {
		action, pod string
		back        bool
	}
	var all []Move
	tries, told := map[once]int{}, map[once]bool{}
	open := map[once]bool{}   // actions that were begun and have no answer; true after another process took over
	back := map[string]bool{} // the direction in which a pod was moved last
	for i := range records {
		r := &records[i]
		action := once{action: r.Action, back: r.Undo}
		switch r.Event {
		case engine.Intended:
			tries[action]++
			open[action] = false
		case engine.Resumed:
			for begun := range open {
				open[begun] = true
			}
		}
		if r.Event != engine.Acted {
			continue
		}
		again := tries[action] > 1 || open[action]
		delete(open, action)
		var result step.AdoptResult
		if !asked[r.Action] || json.Unmarshal(r.Data, &result) != nil {
			continue
		}
		for _, pod := range result.Pods {
			name := pod.Namespace + "/" + pod.Name
			was, before := back[name]
			// Pods that an interrupted action has moved are already there when the action is repeated, and so are those
			// that an action before it has moved.
			moved := pod.State == step.AdoptMoved ||
				pod.State == step.AdoptAlready && again && planned[name] && !(before && was == r.Undo)
			if this := (once{r.Action, name, r.Undo}); moved && !told[this] {
				told[this], back[name] = true, r.Undo
				all = append(all, moveOf(p, r, result.Node, pod))
			}
		}
	}
	return all
}

func moveOf(p *plan.Plan, r *engine.Record, node string, pod step.AdoptOutcome) Move {
	network := p.Target.CNI
	if r.Undo {
		network = p.Source.CNI
	}
	m := Move{Namespace: pod.Namespace, Name: pod.Name, Node: node, Network: network,
		At: r.At, Step: r.Step, Back: r.Undo, FlipMicros: time.Duration(pod.Flip).Microseconds()}
	if n := len(pod.Marks); n > 0 {
		m.Begin, m.End = pod.Marks[0].At, pod.Marks[n-1].At
	}
	for _, mark := range pod.Marks {
		if mark.Phase == string(adoption.Flip) {
			m.At = mark.At
		}
	}
	if gap := pod.Gap; gap != nil {
		m.Sent, m.Lost = gap.Sent, gap.Lost
		m.FlipGapMillis, m.LongestMillis = millis(time.Duration(gap.AtFlip)), millis(time.Duration(gap.Longest))
		m.ControlMillis = millis(time.Duration(gap.Control))
	}
	return m
}

// adopted is nil if no pod was moved.
func adopted(p *plan.Plan, all []Move) *Adopted {
	if len(all) == 0 {
		return nil
	}
	a, planned := &Adopted{}, map[string]bool{}
	for _, w := range p.Workloads {
		for _, pods := range w.Pods {
			for _, pod := range pods {
				planned[w.Namespace+"/"+pod] = true
			}
		}
	}
	var flips []int64
	var atFlip, longest, control []float64
	for i := range all {
		m := &all[i]
		switch {
		case m.Back:
			a.Back++
		case m.Namespace == v1alpha1.Namespace:
			a.Own++
		case !planned[m.Namespace+"/"+m.Name]:
			a.Later++
		}
		if m.FlipMicros > 0 { // the answer about it was not lost
			flips = append(flips, m.FlipMicros)
		}
		if m.Sent == 0 {
			continue
		}
		a.Measured++
		a.Sent += int64(m.Sent)
		a.Lost += int64(m.Lost)
		atFlip, longest, control = append(atFlip, m.FlipGapMillis), append(longest, m.LongestMillis),
			append(control, m.ControlMillis)
	}
	a.Pods = len(all) - a.Back
	a.FlipMicros, a.FlipGapMillis = spread(flips), spread(atFlip)
	a.LongestMillis, a.ControlMillis = spread(longest), spread(control)
	return a
}

// spread is the median, the p99 and the maximum.
func spread[T cmp.Ordered](values []T) [3]T {
	return [3]T{quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1)}
}

func movesText(m Model) string {
	a := m.Adopted
	if a == nil {
		return ""
	}
	text := countOf(int64(a.Pods), "pod") + " while they ran"
	var among []string
	if a.Own > 0 {
		among = append(among, fmt.Sprintf("%d of Theseus' own", a.Own))
	}
	if a.Later > 0 {
		among = append(among, fmt.Sprintf("%d that started after the plan was made", a.Later))
	}
	if len(among) > 0 {
		text += " (" + strings.Join(among, ", ") + ")"
	}
	if a.Back > 0 {
		text += fmt.Sprintf(", %d back", a.Back)
	}
	text += "; p50/p99/longest: flip " + spreadText(a.FlipMicros, short)
	if a.Measured == 0 {
		return text + ", gaps not measured"
	}
	return text + fmt.Sprintf(", gap around it %s, gap just before %s; %s of %s lost",
		spreadText(a.FlipGapMillis, duration), spreadText(a.ControlMillis, duration), number(a.Lost),
		countOf(a.Sent, "datagram"))
}

func spreadText[T any](values [3]T, say func(T) string) string {
	return fmt.Sprintf("%s/%s/%s", say(values[0]), say(values[1]), say(values[2]))
}

// short formats a time in µs.
func short(micros int64) string {
	if micros < 1000 {
		return fmt.Sprintf("%d µs", micros)
	}
	return duration(float64(micros) / 1000)
}

// maxMoveRows is how many moves the page shows at most.
const maxMoveRows = 500

// movedRows are the moves with the longest gaps at the flip first.
func movedRows(m Model) ([]Move, string) {
	list := slices.Clone(m.Moves)
	slices.SortStableFunc(list, func(a, b Move) int { return cmp.Compare(b.FlipGapMillis, a.FlipGapMillis) })
	if len(list) <= maxMoveRows {
		return list, ""
	}
	return list[:maxMoveRows], fmt.Sprintf("The %d with the longest gaps of %s moves.",
		maxMoveRows, number(int64(len(list))))
}
