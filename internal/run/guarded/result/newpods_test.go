package result

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestNewPods: a new pod that failed since a baseline in which those of its node did not is a proven loss. One that is
// not measured is none, and new pods that could not be made after the change are no proof that nothing was lost.
func TestNewPods(t *testing.T) {
	pods := func(failed ...string) *NewPods {
		n := &NewPods{}
		n.Reached(time.Second, 3*time.Second)
		for _, node := range failed {
			n.Fail(NewPod{Node: node, Why: "FailedCreatePodSandBox"})
		}
		return n
	}
	unmeasured, lacks, none := pods(), pods(), &NewPods{}
	none.Leave(NewPod{Node: "a", Why: "it was not admitted: exceeded quota"})
	unmeasured.Leave(NewPod{Node: "a", Why: "it was not admitted: exceeded quota"})
	lacks.Lacks = "refused"
	for name, test := range map[string]struct {
		before, during, since *NewPods
		lost                  int64
		code                  int
		proof                 Proof
		why                   string
	}{
		"good":                       {pods(), pods(), pods(), 0, 0, Good, ""},
		"fails during":               {pods(), pods("a"), pods(), 0, 0, Lost, "on 1 node, such as a at "},
		"fails after":                {pods(), pods(), pods("a", "b"), 0, 0, Lost, "on 2 nodes"},
		"reason":                     {pods(), nil, pods("a"), 0, 0, Lost, "FailedCreatePodSandBox"},
		"fails, and a loss":          {pods(), pods("a"), pods(), 3, 0, Lost, "3 lost; and new pods got no network"},
		"fails, and the command":     {pods(), pods("a"), pods(), 0, 4, Lost, "new pods got no network"},
		"failed before":              {pods("a"), pods("a"), pods("a"), 0, 0, Unproven, "before the change too"},
		"failed before, another":     {pods("a"), pods("a"), pods("b"), 0, 0, Lost, "such as b at "},
		"not measured":               {pods(), pods(), unmeasured, 0, 0, Good, ""},
		"not measured before":        {unmeasured, pods(), pods(), 0, 0, Good, ""},
		"only unmeasured after":      {pods(), pods(), none, 0, 0, Unproven, "no new pod was measured"},
		"not measured before, fails": {unmeasured, pods(), pods("a"), 0, 0, Unproven, "before the change too"},
		"not made before, fails":     {lacks, pods(), pods("b"), 0, 0, Unproven, "before the change too"},
		"not made after":             {pods(), pods(), lacks, 0, 0, Unproven, "refused"},
		"none after":                 {pods(), pods(), nil, 0, 0, Unproven, "no new pods were made after"},
		"not made, and a failure":    {pods(), pods(), lacks, 0, 4, Failed, "exit code 4"},
	} {
		r := Result{Ran: &Ran{Code: test.code, NewPods: test.during},
			Watched: &Watched{Quiet: true, NewPods: test.since},
			Before:  &engine.Verdict{Pass: true}, NewPodsBefore: test.before, newPodsEvery: time.Minute,
			After: &engine.Verdict{Pass: test.lost == 0, Lost: test.lost, Reason: "3 lost"}}
		if proof, why := r.Judge(); proof != test.proof || !strings.Contains(why, test.why) ||
			(why == "") != (proof == Good) {
			t.Errorf("%s: %s, %q", name, proof, why)
		}
	}
	r := Result{Ran: &Ran{}, Watched: &Watched{Quiet: true}, Before: &engine.Verdict{Pass: true},
		After: &engine.Verdict{Pass: true}}
	if proof, why := r.Judge(); proof != Good {
		t.Errorf("a plan without new pods: %s, %q", proof, why)
	}
}

// TestManyFailBefore: new pods that failed on many nodes before the change prove nothing on any of them.
func TestManyFailBefore(t *testing.T) {
	var before, since NewPods
	for i := range 100 {
		before.Fail(NewPod{Node: fmt.Sprint("n", i)})
	}
	since.Fail(NewPod{Node: "n99"})
	if got := since.Since(&before); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestNewPodsSum: sums keep their counts, and lists a few of each node.
func TestNewPodsSum(t *testing.T) {
	var all NewPods
	for i := range 300 {
		var one NewPods
		for j := range 3 {
			one.Reached(time.Second, time.Duration(i+j)*time.Second)
		}
		one.Fail(NewPod{Node: fmt.Sprint("n", i%30)})
		one.Leave(NewPod{Node: "x"})
		all.Add(one)
	}
	if all.Made != 1200 || all.Ready != 900 || all.Failures != 300 || all.Left != 300 || len(all.Took) != mostTook ||
		all.Longest != 301000 || len(all.Failed) != mostNodes || len(all.Unmeasured) != mostNamed {
		t.Errorf("%+v", all)
	}
	if text := all.String(); !strings.Contains(text, "1200 made, 900 reachable after ") ||
		!strings.Contains(text, "301.0 s at most, 300 failed, 300 more not measured") {
		t.Error(text)
	}
	if (&NewPods{}).String() != "none made" || (*NewPods)(nil).UnmeasuredNote() != "" {
		t.Error("of nothing")
	}
}
