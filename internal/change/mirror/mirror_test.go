package mirror_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/cloud"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/step"
)

// mirrorSetup moves five names, as a weighing provider can or not.
func mirrorSetup(weights ...int64) mirror.Setup {
	var moves []zone.Move
	for i := range 5 {
		name := fmt.Sprintf("s%d.example.org.", i)
		sets := func(owner, address string) []zone.RRSet {
			return []zone.RRSet{{Name: name, Type: zone.A, TTL: 300, Values: []string{address}},
				{Name: "a-" + name, Type: zone.TXT, TTL: 300, Values: []string{owner}}}
		}
		moves = append(moves, zone.Move{Zone: "example.org.",
			Unit:     zone.Unit{Name: name, Before: sets("blue", "192.0.2.1"), After: sets("green", "192.0.2.2")},
			Services: []string{"Ingress shop/web"}, Probes: []zone.Probe{{Kind: zone.ProbeTCP,
				Host: strings.TrimSuffix(name, "."), Port: 80, At: []string{"192.0.2.2"}, Was: []string{"192.0.2.1"}}}})
	}
	names := shift.New([]*zone.Zone{{Name: "example.org.", Negative: 60, Can: zone.Can{Swap: true,
		Weights: len(weights) > 0}}}, moves, shift.Options{First: 2, Weights: weights}, "test", time.Unix(1, 0))
	return mirror.Setup{Original: "blue", Mirror: "green",
		Freeze: mirror.FreezeArgs{Namespaces: []string{"shop"}, Reason: "CHG-1"},
		Copy:   mirror.Selection{Namespaces: []string{"shop"}}, Names: names, Switch: mirror.Switch{Command: "true"}}
}

func makeMirror(setup mirror.Setup) (*plan.Plan, error) {
	return propose(&kind.Request{Snapshot: &cluster.Snapshot{UID: "blue"},
		Change:  v1alpha1.ChangeSpec{Strategy: mirror.Name, To: setup.Switch.To},
		Options: plan.Options{Version: "test", Now: time.Unix(2, 0)}}, setup, nil)
}

func propose(r *kind.Request, setup mirror.Setup, within *plan.Plan) (*plan.Plan, error) {
	draft, err := mirror.Propose(r, setup, within)
	if err != nil {
		return nil, err
	}
	return plan.Seal(r.Snapshot, draft)
}

// mirrorRules are those of the names and of all plans, without that which compares the steps with the setup.
func mirrorRules(p *plan.Plan) error {
	return verify.Hold(p, append(verify.General(p, mirror.Kind()), mirror.Traffics(p)))
}

// asWritten is a plan after writing and reading.
func asWritten(t *testing.T, p *plan.Plan) *plan.Plan {
	t.Helper()
	data, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := plan.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Verify(again); err != nil || plan.Hash(again) != p.Hash {
		t.Errorf("after writing and reading: %v", err)
	}
	return again
}

// reads demands that parts are in a runbook, in order.
func reads(t *testing.T, text string, parts ...string) {
	t.Helper()
	last := -1
	for _, part := range parts {
		at := strings.Index(text, part)
		if at <= last {
			t.Errorf("%q is not in the runbook, or not in its place:\n%s", part, text)
		}
		last = at
	}
}

func TestMirror(t *testing.T) {
	for _, weights := range [][]int64{nil, {1, 50}} {
		setup := mirrorSetup(weights...)
		p, err := makeMirror(setup)
		if err != nil {
			t.Fatal(err)
		}
		reads(t, plan.Runbook(asWritten(t, p)), "s3.example.org (Ingress shop/web): 192.0.2.1 -> 192.0.2.2",
			"freeze shop", "copy shop until nothing differs", "lower the TTL of 5 names to 30 s", "[over/wave-1",
			"no cache remembers the original", "POINT OF NO RETURN", "change the original: true", "== Move names back",
			"[home/wave-1", "undoes this step only", "no cache remembers the mirror", "restore the TTLs",
			"thaw shop", "delete the copied objects")
	}
}

// TestMirrorRules breaks each rule on a plan that holds, past the comparison with the setup.
func TestMirrorRules(t *testing.T) {
	at := func(p *plan.Plan, id string) int {
		for i := range p.Steps {
			if p.Steps[i].ID == id {
				return i
			}
		}
		t.Fatalf("there is no step %s", id)
		return -1
	}
	drop := func(p *plan.Plan, id string) {
		i := at(p, id)
		p.Steps = append(p.Steps[:i:i], p.Steps[i+1:]...)
	}
	swap := func(p *plan.Plan, a, b string) {
		i, j := at(p, a), at(p, b)
		p.Steps[i], p.Steps[j] = p.Steps[j], p.Steps[i]
	}
	for name, c := range map[string]struct {
		breaks func(*plan.Plan)
		says   string
	}{
		"no freeze":          {func(p *plan.Plan) { drop(p, "freeze") }, "a deploy could slip in"},
		"no copy":            {func(p *plan.Plan) { drop(p, "copy") }, "would move before the mirror is ready"},
		"no wait for caches": {func(p *plan.Plan) { drop(p, "over/settle") }, "clients may still use the original"},
		"a name stays": {func(p *plan.Plan) { drop(p, "over/wave-2") },
			"clients may still use the original for s2"},
		"home before it is one": {func(p *plan.Plan) { drop(p, "whole") }, "before the original is complete"},
		"thaw too early": {func(p *plan.Plan) { swap(p, "thaw", "home/settle") },
			"clients may still use the mirror"},
		"teardown too early": {func(p *plan.Plan) { swap(p, "teardown", "home/wave-1") },
			"clients may still use the mirror"},
		"a name stays there": {func(p *plan.Plan) { drop(p, "home/wave-2") },
			"it expects other records of s2.example.org."},
		"TTLs stay low": {func(p *plan.Plan) { drop(p, "home/restore") },
			"at the end s0.example.org. does not have the records"},
		"deploys stay stopped": {func(p *plan.Plan) { drop(p, "thaw") }, "at the end deploys are stopped"},
		"no point of no return": {func(p *plan.Plan) { p.Steps[at(p, "change")].NoReturn = false },
			"0 points of no return"},
		"nobody watches": {func(p *plan.Plan) { p.Steps[at(p, "over/wave-1")].Gate = nil }, "no gate watches it"},
		"home not alone": {func(p *plan.Plan) { p.Steps[at(p, "home/wave-1")].Alone = false },
			"would leave names on a cluster that does not"},
		"another operation": {func(p *plan.Plan) { p.Steps[0].Actions[0].Do = step.Evict{} },
			`the operation "evict" is not allowed`},
		"another verb": {func(p *plan.Plan) { p.Steps[0].Actions[0].Do = step.Mirror{Verb: "burn"} }, `the verb "burn" is not known`},
		"bad arguments": {func(p *plan.Plan) {
			step.Edit(&p.Steps[at(p, "over/lower")].Actions[0], func(do *step.DNS) { do.Args = json.RawMessage(`[]`) })
		}, "arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := makeMirror(mirrorSetup())
			if err != nil {
				t.Fatal(err)
			}
			c.breaks(p)
			if err := plan.Verify(p); err == nil ||
				!strings.Contains(err.Error(), "not those that this version makes") {
				t.Errorf("an edited plan: %v", err)
			}
			if err := mirrorRules(p); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

// switcher makes plans by which the original is changed by a strategy, with all that may be asked for besides.
func switcher(t *testing.T, edit func(*v1alpha1.ChangeSpec)) func(mirror.Setup) (*plan.Plan, error) {
	t.Helper()
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
	drivers := cni.Registry{flannel.Driver{}, calico.Driver{}}
	options := plan.Options{Manifest: cnitest.Fixture(t, "calico-manifest.yaml"), Version: "test", Now: time.Unix(2, 0)}
	change := v1alpha1.ChangeSpec{To: "calico", Manifest: "calico.yaml", PodCIDR: "10.96.0.0/16",
		AgentImage: "theseus.dev/agent:dev"}
	edit(&change)
	within, err := plan.Make(snapshot, change, drivers, nil, options)
	if err != nil {
		t.Fatal(err)
	}
	strategy := change.Strategy
	change.Strategy = mirror.Name
	return func(setup mirror.Setup) (*plan.Plan, error) {
		setup.Switch.To, setup.Switch.Strategy = "calico", strategy
		return propose(&kind.Request{Snapshot: snapshot, Change: change, Drivers: drivers, Options: options},
			setup, within)
	}
}

// everything is a setup in which all is asked for that can be.
func everything() mirror.Setup {
	setup := mirrorSetup()
	setup.Switch.Command = ""
	setup.Certificates = &mirror.CertificateArgs{Namespaces: []string{"shop"},
		Domains: []string{"blue.example.org=green.example.org"}}
	setup.Cloud = &mirror.CloudSetup{Endpoint: "http://192.0.2.9", Actions: []cloud.Action{{Verb: cloud.AttachPolicy,
		Subject: "nodes.green"}, {Verb: cloud.AddToProfile, Subject: "nodes.green"}}}
	return setup
}

// TestMirrorSwitch has the original changed by a strategy: its steps are in the plan, between those that move the
// names, and hold by their own rules too.
func TestMirrorSwitch(t *testing.T) {
	switched := switcher(t, func(c *v1alpha1.ChangeSpec) { c.Strategy = "recreate" })
	p, err := switched(everything())
	if err != nil {
		t.Fatal(err)
	}
	reads(t, plan.Runbook(asWritten(t, p)), "the original changes from flannel", "What happens to every workload",
		"attach-policy nodes.green", "add the names under green.example.org", "freeze shop", "[over/settle",
		"== Run both networks on every node", "POINT OF NO RETURN", "Remove flannel", "== Change the original",
		"== Move names back", "delete the copied objects", "remove the mirror's names from",
		"undo: attach-policy nodes.green")
	index := func(id string) int {
		i := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == id })
		if i < 0 {
			t.Fatalf("there is no step %s", id)
		}
		return i
	}
	drop := func(id string) { p.Steps = slices.Delete(p.Steps, index(id), index(id)+1) }
	swap := func(a, b string) { i, j := index(a), index(b); p.Steps[i], p.Steps[j] = p.Steps[j], p.Steps[i] }
	for says, breaks := range map[string]func(){
		"clients may still use the original":  func() { drop("over/settle") },
		"is not allowed in it":                func() { swap("prepare/theseus", "over/settle") },
		"the freeze denies the change":        func() { swap("names", "freeze") },
		"not known before it":                 func() { drop("joint/definitions") },
		"clients may still use the mirror":    func() { swap("uncloud", "home/settle") },
		"are not those that this version mak": func() { p.Mirror.Switch.Strategy = "" },
	} {
		if p, err = switched(everything()); err != nil {
			t.Fatal(err)
		}
		breaks()
		rules := mirrorRules(p)
		if rules == nil {
			rules = plan.Verify(p)
		}
		if rules == nil || !strings.Contains(rules.Error(), says) {
			t.Errorf("%v, want %q", rules, says)
		}
	}
	command := everything()
	command.Switch.Command = "true"
	if _, err := switched(command); err == nil ||
		!strings.Contains(err.Error(), "by a strategy to a network, or by a command") {
		t.Errorf("a strategy and a command: %v", err)
	}
}

// TestMirrorSurge has the original's nodes replaced by commands of the user's, at the place where nobody asks the
// original.
func TestMirrorSurge(t *testing.T) {
	hooks := func(c *v1alpha1.ChangeSpec) {
		c.Strategy, c.AddHook, c.RemoveHook, c.Waves = "surge", "pool add", `pool "remove it"`, []int{0}
	}
	switched := switcher(t, hooks)
	p, err := switched(everything())
	if err != nil {
		t.Fatal(err)
	}
	p = asWritten(t, p)
	if len(p.Surge.Slots()) == 0 || p.Surge.RemoveHook[1] != "remove it" {
		t.Errorf("it does not say which nodes come, or how they go: %+v", p.Surge)
	}
	reads(t, plan.Runbook(p), "the original changes from flannel",
		`adds nodes with ["pool" "add"] and removes them with`, "replaced by new-1", "freeze shop", "[over/settle",
		"== Run both networks on every node", `add node new-1: run ["pool" "add"]`,
		"POINT OF NO RETURN", `remove node node-1: run ["pool" "remove it"]`,
		"Remove flannel", "== Change the original", "== Move names back", "delete the copied objects")
	i := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.NoReturn })
	p.Steps = slices.Delete(p.Steps, i, i+1) // a wave of nodes would never go
	if err := plan.Verify(p); err == nil {
		t.Error("a plan that leaves old nodes there holds")
	}
	if p, err = switched(everything()); err != nil {
		t.Fatal(err)
	}
	if p.Surge = nil; plan.Verify(p) == nil {
		t.Error("a plan holds that does not say which nodes come and go")
	}
	var change v1alpha1.ChangeSpec
	hooks(&change)
	change.Strategy = mirror.Name
	if _, err := propose(&kind.Request{Snapshot: &cluster.Snapshot{UID: "blue"}, Change: change}, mirrorSetup(),
		nil); err == nil || !strings.Contains(err.Error(), "are for the strategy surge") {
		t.Errorf("hooks that nobody would run: %v", err)
	}
}

// TestMirrorRoll: nodes that stay sick are replaced once more when nobody asks the original, right after the command
// and before the gate.
func TestMirrorRoll(t *testing.T) {
	setup := mirrorSetup()
	setup.Switch.Roll, setup.Switch.RollAfter = "pool replace $THESEUS_NODE", step.Duration(10*time.Minute)
	p, err := makeMirror(setup)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "change" })
	if change := p.Steps[i]; !change.NoReturn || len(change.Actions) != 2 ||
		change.Actions[1].Verb() != mirror.Roll || change.Gate == nil {
		t.Errorf("%+v", change)
	}
	if text := plan.Runbook(p); !strings.Contains(text,
		"once, replace nodes that are not Ready after 10m0s: pool replace $THESEUS_NODE") {
		t.Errorf("the runbook is\n%s", text)
	}
	p.Steps[i].Actions, p.Steps[0].Actions = p.Steps[i].Actions[:1], append(p.Steps[0].Actions, p.Steps[i].Actions[1])
	if err := mirrorRules(p); err == nil || !strings.Contains(err.Error(), "clients may still use the original") {
		t.Errorf("nodes are replaced while the original serves: %v", err)
	}
}

func TestMirrorRefused(t *testing.T) {
	for says, edit := range map[string]func(*mirror.Setup){
		"are one cluster":           func(s *mirror.Setup) { s.Mirror = s.Original },
		"the plan cannot tell when": func(s *mirror.Setup) { s.Switch = mirror.Switch{} },
		"replaces the nodes that are not Ready": func(s *mirror.Setup) {
			s.Switch = mirror.Switch{To: "calico", Roll: "true", RollAfter: 1}
		},
		`the network "carrier-pigeon" is not kn`: func(s *mirror.Setup) { s.Switch.To = "carrier-pigeon" },
		"was edited since it was made":           func(s *mirror.Setup) { s.Names.Moves[0].Name = "s1.example.org." },
	} {
		setup := mirrorSetup()
		edit(&setup)
		if _, err := makeMirror(setup); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
