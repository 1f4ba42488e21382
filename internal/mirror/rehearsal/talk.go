package rehearsal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// settled is how long the pods of a connection have been ready before it counts, and steady how long they stay so:
	// kube-proxy sends to a pod that ends until it has learnt of that.
	settled, steady = 5 * time.Second, 3 * time.Second
	// mostAnswers bounds the answers that wait to be judged.
	mostAnswers = 100_000
	// enough answers tell what the network does with a connection.
	enough = 3
)

// Asked is what became of a connection that stand-ins opened all the time.
type Asked struct {
	Pair
	// Asked counts the times, while both ends had been ready for a while. Lost of them policies allow before and after
	// the change, and got no answer; Leaked of them they deny, and got through. Changed of them were no longer as
	// before the change, as the policies say.
	Asked int `json:"asked"`
	Lost  int `json:"lost,omitempty"`
	// LostBack of those Lost were lost before the run to the end began: in the run that was rolled back.
	LostBack int `json:"lostBack,omitempty"`
	Leaked   int `json:"leaked,omitempty"`
	Changed  int `json:"changed,omitempty"`
	// Longest is for how long one pod saw this without an interruption; Lasting says that it was for Lasts, or until
	// the end of the run.
	Longest step.Duration `json:"longest,omitempty"`
	Lasting bool          `json:"lasting,omitempty"`
	// Unlike says why the connection was not compared.
	Unlike string `json:"unlike,omitempty"`

	before, through, recent int
}

// Talk judges the connections between stand-ins.
type Talk struct {
	asked   []Asked
	began   bool
	ready   map[string]group    // by workload
	pods    map[types.UID]group // those of sources
	answers []answer
	spells  map[spell]stretch
	last    time.Time
	// listening is since when answers count for Heard; after says that this was when the change had begun.
	listening time.Time
	after     bool
	final     time.Time // when the run to the end began
}

// group is which pods are ready, and since when the same ones are.
type group struct {
	pods  string
	since time.Time
}

// answer is what a pod saw of a connection.
type answer struct {
	at      time.Time
	pod     types.UID
	pair    int
	through bool
}

// spell is a pod and a connection that is not as before the change, stretch is how long.
type spell struct {
	pod  types.UID
	pair int
}

type stretch struct {
	since, last time.Time
	n           int
}

// NewTalk judges the connections of a copy; unlike says why some are not (Reread).
func (c *Copy) NewTalk(unlike map[int]string) *Talk {
	t := &Talk{spells: map[spell]stretch{}}
	for i, pair := range c.Traffic {
		t.asked = append(t.asked, Asked{Pair: pair, Unlike: unlike[i]})
	}
	return t
}

// Answer takes in what a pod saw of a connection at a time, on the clock of Look.
func (t *Talk) Answer(at time.Time, pod types.UID, pair int, through bool) {
	if pair >= 0 && pair < len(t.asked) && len(t.answers) < mostAnswers {
		t.answers = append(t.answers, answer{at, pod, pair, through})
	}
}

// Look takes in which pods are ready now, and judges the answers before.
func (t *Talk) Look(now Seen) {
	if now.At.Sub(t.last) > gap {
		t.ready, t.pods = nil, nil
	}
	t.last = now.At
	names, pods := map[string][]string{}, map[types.UID]group{}
	for i := range now.Pods {
		pod := &now.Pods[i]
		if pod.DeletionTimestamp != nil || !cluster.PodReady(pod) {
			continue
		}
		workload := observe.Workload(pod)
		names[workload] = append(names[workload], string(pod.UID))
		pods[pod.UID] = group{since: now.At}
		if old, known := t.pods[pod.UID]; known {
			pods[pod.UID] = old
		}
	}
	ready := map[string]group{}
	for workload, all := range names {
		slices.Sort(all)
		is := group{strings.Join(all, " "), now.At}
		if old := t.ready[workload]; old.pods == is.pods {
			is = old
		}
		ready[workload] = is
	}
	t.ready, t.pods = ready, pods
	t.answers = slices.DeleteFunc(t.answers, func(a answer) bool {
		if now.At.Sub(a.at) < steady {
			return false
		}
		from, there := pods[a.pod]
		to, answers := ready[t.asked[a.pair].To]
		if there && answers && a.at.Sub(from.since) >= settled && a.at.Sub(to.since) >= settled {
			t.judge(a)
		}
		return true
	})
}

// judge compares an answer with those before the change.
func (t *Talk) judge(a answer) {
	one := &t.asked[a.pair]
	if !a.at.Before(t.listening) {
		one.recent++
	}
	switch {
	case !t.began:
		one.before++
		if a.through {
			one.through++
		}
		return
	case one.Unlike != "":
		return
	}
	one.Asked++
	key := spell{a.pod, a.pair}
	if a.through != one.Denied {
		delete(t.spells, key)
		return
	}
	lasts := t.spells[key]
	if lasts.n == 0 || a.at.Sub(lasts.last) > gap {
		lasts = stretch{since: a.at}
	}
	lasts.n, lasts.last = lasts.n+1, a.at
	t.spells[key] = lasts
	switch {
	case one.Denied != one.DeniedAfter:
		one.Changed++
	case a.through:
		one.Leaked++
	default:
		one.Lost++
		if t.final.IsZero() || a.at.Before(t.final) {
			one.LostBack++
		}
	}
	one.Longest = max(one.Longest, step.Duration(lasts.last.Sub(lasts.since)))
	one.Lasting = one.Lasting || time.Duration(one.Longest) >= Lasts
}

// Again starts over: what pods saw in the meantime is not judged.
func (t *Talk) Again() {
	t.ready, t.pods, t.answers, t.spells = nil, nil, nil, map[spell]stretch{}
}

// Listen starts the count for Heard at zero: what pods see from now on. Answers from before are still judged.
func (t *Talk) Listen(now time.Time) {
	t.listening, t.after = now, t.began
	for i := range t.asked {
		t.asked[i].recent = 0
	}
}

// Heard says that each connection that is compared was asked since Listen.
func (t *Talk) Heard() bool {
	return !slices.ContainsFunc(t.asked, func(a Asked) bool { return a.Unlike == "" && a.recent < enough })
}

// Begin says that the change begins: until now, connections should have been as the policies say. Answers that wait
// are of the time before.
func (t *Talk) Begin() {
	t.began, t.answers = true, nil
	for i := range t.asked {
		one := &t.asked[i]
		switch {
		case one.Unlike != "":
		case one.before < enough:
			one.Unlike = "it was not tried often enough before the change" + untried
		case one.Denied && one.through > 0:
			one.Unlike = "policies deny it, and it got through before the change"
		case !one.Denied && one.through < one.before:
			one.Unlike = fmt.Sprintf("policies allow it, and %d of %d got no answer before the change",
				one.before-one.through, one.before)
		}
	}
}

// Final says that the run begins that goes to the end: the change allows losses in each run.
func (t *Talk) Final(now time.Time) { t.final = now }

// untried is why a connection was not tried.
const untried = ": its pods were not ready, or their logs could not be read"

// End says that the run has ended: what is not as before stays so. A connection that nobody tried since is not
// compared.
func (t *Talk) End() {
	for i := range t.asked {
		one := &t.asked[i]
		if one.Unlike == "" && (one.Asked == 0 || t.after && one.recent < enough) {
			one.Unlike = "it was not tried often enough after the change" + untried
		}
	}
	for key, lasts := range t.spells {
		if lasts.n >= enough && t.last.Sub(lasts.last) <= gap {
			t.asked[key.pair].Lasting = true
		}
	}
}

// Asked is what became of all connections.
func (t *Talk) Asked() []Asked { return slices.Clone(t.asked) }

// shown is a connection that stayed otherwise than before the change as a trap.
func (a Asked) shown() Shown {
	s := Shown{Trap: TrapPolicy, Object: a.To, ends: []string{namespaceOf(a.From), namespaceOf(a.To)}}
	how := "worked before the change and now gets no answer"
	if a.Denied {
		how = "got no answer before the change and now gets through"
	} else if !a.DeniedAfter {
		s.Trap = TrapTraffic
	}
	s.What = fmt.Sprintf("the connection from %s by Service %s, %s, %s", a.From, a.Service, a.port(), how)
	if a.Denied == a.DeniedAfter {
		s.What += fmt.Sprintf("; the policies say that it is %s", a.says())
	}
	return s
}

func namespaceOf(workload string) string {
	_, name, _ := strings.Cut(workload, " ")
	namespace, _, _ := strings.Cut(name, "/")
	return namespace
}

// Heard adds what stayed of connections to what a run showed.
func (w *Watch) Heard(all []Asked) {
	for _, one := range all {
		if one.Lasting {
			w.show(one.shown())
		}
	}
}

// TalkTable is what became of the connections between stand-ins: those that were not as before come first.
func TalkTable(all []Asked) Table {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Asked) int { return b.trouble() - a.trouble() })
	return tableOf("Connections between stand-ins", []string{"FROM", "TO", "SERVICE", "POLICIES SAY", "TRIED", "LOST",
		"LEAKED", "CHANGED", "LONGEST"}, all, func(a Asked) []string {
		return []string{a.From, a.To, a.at(), cmp.Or(a.Unlike, a.says()),
			fmt.Sprint(a.Asked), fmt.Sprint(a.Lost), fmt.Sprint(a.Leaked), fmt.Sprint(a.Changed),
			fmt.Sprint(time.Duration(a.Longest).Round(time.Second))}
	})
}

func (a Asked) trouble() int { return a.Lost + a.Leaked + a.Changed }

// TalkText sums up the connections between stand-ins in a line, with those that were lost or leaked.
func TalkText(all []Asked) string {
	asked, lost, leaked, compared := 0, 0, 0, 0
	var names []string
	for _, one := range all {
		asked, lost, leaked = asked+one.Asked, lost+one.Lost, leaked+one.Leaked
		if one.Unlike == "" {
			compared++
		}
		if one.Lost+one.Leaked > 0 {
			names = append(names, fmt.Sprintf("%s (%d lost, %d leaked, for %s at most)", one.Pair, one.Lost, one.Leaked,
				time.Duration(one.Longest).Round(time.Second)))
		}
	}
	text := fmt.Sprintf("connections between stand-ins: %d of %d compared, tried %s, %d lost, %d leaked", compared,
		len(all), cluster.Count(asked, "time"), lost, leaked)
	if len(names) > 0 {
		text += ": " + few(names)
	}
	return text
}

// TalkWrong says why connections between stand-ins keep a change from passing, if they do: one that policies deny got
// through, or more were lost in a run than the change allows, or one of them for long.
func TalkWrong(all []Asked, maxLost int64) string {
	back, final := 0, 0
	for _, one := range all {
		back, final = back+one.LostBack, final+one.Lost-one.LostBack
		switch {
		case one.Leaked > 0:
			return fmt.Sprintf("policies deny a connection between stand-ins, and it got through %s: %s",
				cluster.Count(one.Leaked, "time"), one.Pair)
		case one.Lasting && one.Lost > 0:
			return fmt.Sprintf("a connection between stand-ins that policies allow got no answer any more: %s",
				one.Pair)
		}
	}
	if lost := max(back, final); int64(lost) > maxLost {
		return fmt.Sprintf("%s between stand-ins got no answer in one run, and the change allows %d",
			cluster.Count(lost, "connection"), maxLost)
	}
	return ""
}

// TalkUnlike are the connections between stand-ins that were not compared, each with the reason.
func TalkUnlike(all []Asked) (texts []string) {
	for _, one := range all {
		if one.Unlike != "" {
			texts = append(texts, one.Pair.String()+": "+one.Unlike)
		}
	}
	return texts
}
