package rehearsal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

// talker is a ready pod without a controller.
func talker(name string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady,
			Status: corev1.ConditionTrue}}}}
}

// TestTalk: connections are compared with those before the change. What is lost or leaks is counted, and lasts when it
// was so for Lasts or until the end; what may be otherwise, because pods come and go, is not counted.
func TestTalk(t *testing.T) {
	const minute = 60
	gone := func(from, to int) func(int) bool { return func(i int) bool { return i >= from && i < to } }
	never := gone(0, 0)
	for name, c := range map[string]struct {
		pair Pair
		// before is what is seen before the change, and other says in which seconds of it something else is.
		before bool
		other  func(second int) bool
		// away says when the pod at the other end is not ready.
		away func(second int) bool
		seconds,
		lost, leaked, changed int
		lasting             bool
		unlike, trap, wrong string
	}{
		"allowed":         {before: true, other: never, away: never, seconds: minute},
		"denied":          {pair: Pair{Denied: true, DeniedAfter: true}, other: never, away: never, seconds: minute},
		"lost for a time": {before: true, other: gone(10, 20), away: never, seconds: minute, lost: 10},
		"lost, more than is allowed": {before: true, other: gone(10, 35), away: never, seconds: minute, lost: 25,
			wrong: "25 connections between stand-ins got no answer in one run, and the change allows 20"},
		"lost for long": {before: true, other: gone(10, 56), away: never, seconds: 2 * minute, lost: 46, lasting: true,
			trap: "traffic", wrong: "that policies allow got no answer any more"},
		"lost until the end": {before: true, other: gone(50, minute), away: never, seconds: minute, lost: 10,
			lasting: true, trap: "traffic", wrong: "that policies allow got no answer any more"},
		"leaks once": {pair: Pair{Denied: true, DeniedAfter: true}, other: gone(10, 11), away: never, seconds: minute,
			leaked: 1, wrong: "it got through 1 time: "},
		"will be denied": {pair: Pair{DeniedAfter: true}, before: true, other: gone(20, minute), away: never,
			seconds: minute, changed: 40, lasting: true, trap: "policy"},
		"will be allowed": {pair: Pair{Denied: true}, other: gone(20, minute), away: never,
			seconds: minute, changed: 40, lasting: true, trap: "policy"},
		"moves": {before: true, other: gone(20, 30), away: gone(20, 30), seconds: minute},
		"moves, and is lost": {before: true, other: gone(20, minute), away: gone(20, 30), seconds: minute, lost: 25,
			lasting: true, trap: "traffic", wrong: "that policies allow got no answer any more"},
		"not as the policies say": {pair: Pair{Denied: true, DeniedAfter: true}, before: true, other: never,
			away: never, seconds: minute, unlike: "policies deny it, and it got through before the change"},
		"no answer": {before: false, other: never, away: never, seconds: minute,
			unlike: "policies allow it, and 16 of 16 got no answer before the change"},
	} {
		c.pair.From, c.pair.To, c.pair.Service, c.pair.Port = "Pod shop/a", "Pod shop/b", "shop/b", 80
		talk := (&Copy{Traffic: []Pair{c.pair}}).NewTalk(nil)
		second := func(at int, sees, ready bool) {
			other := talker("b")
			if !ready {
				other.Status.Conditions = nil
			}
			talk.Look(Seen{At: noon.Add(time.Duration(at) * time.Second), Pods: []corev1.Pod{talker("a"), other}})
			talk.Answer(noon.Add(time.Duration(at)*time.Second), "a", 0, sees)
		}
		const first = 20
		talk.Listen(noon)
		for i := range first {
			second(i, c.before, true)
			if heard := talk.Heard(); heard != (i >= 5+3+2) { // ready since the first look, and judged later
				t.Errorf("%s: heard after %d s: %v", name, i, heard)
			}
		}
		second(first, c.before, true)
		second(first+1, c.before, true)
		second(first+2, c.before, true)
		second(first+3, c.before, true)
		talk.Begin()
		for i := range c.seconds {
			second(first+4+i, c.before != c.other(i), !c.away(i))
		}
		for i := range 3 { // what is judged later
			talk.Look(Seen{At: noon.Add(time.Duration(first+4+c.seconds+i) * time.Second),
				Pods: []corev1.Pod{talker("a"), talker("b")}})
		}
		talk.End()
		got := talk.Asked()[0]
		if got.Lost != c.lost || got.Leaked != c.leaked || got.Changed != c.changed || got.Lasting != c.lasting ||
			got.Unlike != c.unlike || (c.unlike == "") != (got.Asked > 40) {
			t.Errorf("%s: %+v", name, got)
		}
		w := Watch{}
		w.Heard(talk.Asked())
		if shown := w.Shown(nil); len(shown) > 1 || (len(shown) == 1) != (c.trap != "") ||
			len(shown) == 1 && (string(shown[0].Trap) != c.trap || shown[0].Object != "Pod shop/b" ||
				!strings.Contains(shown[0].What, " before the change and now g")) {
			t.Errorf("%s: %v", name, shown)
		}
		if wrong := TalkWrong(talk.Asked(), 20); (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}

// TestTalkAway: while the API server is away, or another run has a fault, nothing is judged; then pods must be ready
// for a while again.
func TestTalkAway(t *testing.T) {
	for name, pause := range map[string]func(*Talk){"away": func(*Talk) {}, "again": (*Talk).Again} {
		talk := (&Copy{Traffic: []Pair{{From: "Pod shop/a", To: "Pod shop/b"}}}).NewTalk(nil)
		both := []corev1.Pod{talker("a"), talker("b")}
		at := 0
		look := func(seconds int, through bool) {
			for range seconds {
				talk.Look(Seen{At: noon.Add(time.Duration(at) * time.Second), Pods: both})
				talk.Answer(noon.Add(time.Duration(at)*time.Second), "a", 0, through)
				at++
			}
		}
		look(20, true)
		talk.Begin()
		if name == "away" {
			at += 16
		} else {
			pause(talk)
		}
		look(4, false) // not yet
		look(20, true)
		if got := talk.Asked()[0]; got.Lost > 0 || got.Asked == 0 {
			t.Errorf("%s: %+v", name, got)
		}
		talk.Answer(noon, "a", 1, true) // no such connection
		talk.Answer(noon, "a", -1, true)
		look(20, true)
	}
}

// TestTalkRuns: a connection that was lossy before the change is not compared, and the losses of the run that is rolled
// back and of the run to the end are not added.
func TestTalkRuns(t *testing.T) {
	for name, c := range map[string]struct {
		before, back, final int // lost
		unlike, wrong       string
	}{
		"none":          {},
		"lossy before":  {before: 1, back: 9, unlike: "policies allow it, and 1 of 12 got no answer before the change"},
		"less in each":  {back: 5, final: 5},
		"more in one":   {back: 6, wrong: "6 connections between stand-ins got no answer in one run"},
		"more at last":  {back: 5, final: 7, wrong: "7 connections between stand-ins got no answer in one run"},
		"no run to end": {back: 3},
	} {
		talk := (&Copy{Traffic: []Pair{{From: "Pod shop/a", To: "Pod shop/b"}}}).NewTalk(nil)
		at := noon
		look := func(lost int) {
			for i := range 20 {
				talk.Look(Seen{At: at, Pods: []corev1.Pod{talker("a"), talker("b")}})
				talk.Answer(at, "a", 0, i < 10-lost || i >= 10)
				at = at.Add(time.Second)
			}
		}
		look(c.before)
		talk.Begin()
		look(c.back)
		talk.Final(at)
		look(c.final)
		talk.Listen(at)
		look(0)
		talk.End()
		got := talk.Asked()
		if got[0].Unlike != c.unlike || c.unlike == "" && (got[0].LostBack != c.back || got[0].Lost != c.back+c.final) {
			t.Errorf("%s: %+v", name, got[0])
		}
		if wrong := TalkWrong(got, 5); (wrong == "") != (c.wrong == "") || !strings.HasPrefix(wrong, c.wrong) {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}

// TestTalkEnd: a connection is compared only if it was tried often enough before the change and after it. What leaked
// before Listen is judged after it.
func TestTalkEnd(t *testing.T) {
	const often = "it was not tried often enough "
	for name, c := range map[string]struct {
		before, during, after int // seconds
		listen                bool
		leaks                 int
		unlike                string
	}{
		"well":                     {before: 20, during: 20, after: 20, listen: true},
		"hardly tried before":      {before: 9, during: 20, after: 20, listen: true, unlike: often + "before"},
		"not tried since":          {before: 20, unlike: often + "after"},
		"never after it":           {before: 20, during: 20, listen: true, unlike: often + "after"},
		"hardly after it":          {before: 20, during: 20, after: 5, listen: true, unlike: often + "after"},
		"the run fails":            {before: 20, during: 20},
		"leaks as the change ends": {before: 20, during: 20, after: 20, listen: true, leaks: 2},
	} {
		talk := (&Copy{Traffic: []Pair{{From: "Pod shop/a", To: "Pod shop/b", Denied: true, DeniedAfter: true}}}).
			NewTalk(nil)
		at := noon
		look := func(seconds int, through func(int) bool) {
			for i := range seconds {
				talk.Look(Seen{At: at, Pods: []corev1.Pod{talker("a"), talker("b")}})
				talk.Answer(at, "a", 0, through(i))
				at = at.Add(time.Second)
			}
		}
		never := func(int) bool { return false }
		talk.Listen(at)
		look(c.before, never)
		talk.Begin()
		look(c.during, func(i int) bool { return i >= c.during-c.leaks })
		if c.listen {
			talk.Listen(at)
			look(c.after, never)
			if talk.Heard() != (c.after > 5) {
				t.Errorf("%s: heard: %v", name, talk.Heard())
			}
		}
		talk.End()
		if got := talk.Asked()[0]; got.Leaked != c.leaks || !strings.HasPrefix(got.Unlike, c.unlike) ||
			(c.unlike == "") != (got.Unlike == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestAddress: the arguments of stand-ins get the addresses of Services; one without an address is not asked.
func TestAddress(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment", "spec": map[string]any{
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"args": []any{"stand-in", "--tcp=80", "--ask=0=@shop/a:80,2=@shop/none:80,3=@shop/six:443"}}}}}}}}
	addresses := map[string]string{"shop/a": "10.96.0.7", "shop/none": "None", "shop/six": "fd00::7"}
	of := func(service string) (string, error) { return addresses[service], nil }
	for range 2 { // again changes nothing
		if err := Address(object, of); err != nil {
			t.Fatal(err)
		}
		var args []string
		editArgs(object, func(all []string) []string { args = slices.Clone(all); return all })
		if got := strings.Join(args, " "); got != "stand-in --tcp=80 --ask=0=10.96.0.7:80,3=[fd00::7]:443" {
			t.Error(got)
		}
	}
	broken := object.DeepCopy()
	editArgs(broken, func([]string) []string { return []string{"--ask=0=@shop/a:80"} })
	if err := Address(broken, func(string) (string, error) { return "", fmt.Errorf("gone") }); err == nil {
		t.Error("an error is lost")
	}
}

// TestPolicyTrapReported: a trap of a policy is reported by findings about policies of either end, and about those of
// the whole cluster.
func TestPolicyTrapReported(t *testing.T) {
	trap := Asked{Pair: Pair{From: "Pod shop/a", To: "Pod store/b", DeniedAfter: true}, Lasting: true}
	for namespace, reported := range map[string]bool{"shop": true, "store": true, "": true, "other": false} {
		w := Watch{}
		w.Heard([]Asked{trap})
		shown := w.Shown([]finding.Finding{{ID: "policy/verdict-changes", Severity: finding.Block,
			Subject: finding.Subject{Kind: "NetworkPolicy", Namespace: namespace, Name: "p"}}})
		if len(shown) != 1 || (len(shown[0].Checks) == 1) != reported {
			t.Errorf("%q: %+v", namespace, shown)
		}
	}
}
