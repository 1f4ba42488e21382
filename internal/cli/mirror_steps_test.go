package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/cloud"
	"github.com/theseus-cni/theseus/internal/mirror/cloud/aws/awstest"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestCloudSteps carries out the steps about the cloud of a plan, over HTTP: a failure takes back what was done, and at the end
// all goes but what somebody else had given before, whoever goes on with it.
func TestCloudSteps(t *testing.T) {
	inventory := awstest.Inventory(t, filepath.Join("..", "mirror", "cloud", "testdata", "inventory.yaml"))
	fake := awstest.Start(t, inventory)
	given := slices.DeleteFunc(cloud.Compare(inventory, "blue.example.org", "green.example.org", nil).Actions, func(a cloud.Action) bool {
		return a.Verb == cloud.NewVersion // of which IAM keeps five, and this story would make more
	})
	fake.Attach("nodes.green.example.org", "arn:aws:iam::123456789012:policy/backup") // by somebody else, after the plan was made
	setup := mirror.Setup{Names: shift.New(nil, nil, shift.Options{}, "test", time.Unix(1, 0)), Cloud: &mirror.CloudSetup{Endpoint: fake.URL, Actions: given}}
	p := &plan.Plan{Name: "test", Hash: "test", Steps: slices.DeleteFunc(mirror.Steps(setup, nil), func(s step.Step) bool { return !strings.HasSuffix(s.ID, "cloud") })}
	if len(p.Steps) != 2 || len(given) < 3 {
		t.Fatalf("%d steps with %d changes", len(p.Steps), len(given))
	}
	state := func() (text string) {
		fake.Change(func(i *cloud.Inventory) {
			roles := slices.SortedFunc(slices.Values(i.Roles), func(a, b cloud.Role) int { return strings.Compare(a.Name, b.Name) })
			all, err := json.Marshal([]any{roles, i.Profiles, i.Issuers, i.Groups})
			if err != nil {
				t.Error(err)
			}
			text = string(all)
		})
		return text
	}
	before := state()
	carry := func(records engine.Journal) engine.Outcome {
		t.Helper()
		outcome, err := engine.Run(t.Context(), p, engine.Deps{Actor: &hands{records: records, note: func(string) {}}, Journal: records, Clock: run.Clock{},
			Control: dns.Wish(v1alpha1.DesireRun), Theseus: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	fake.Fail = func(action string) string {
		return map[string]string{"AuthorizeSecurityGroupIngress": "AuthFailure"}[action]
	}
	if outcome := carry(&journal.Memory{}); outcome.End != engine.EndRolledBack || state() != before {
		t.Errorf("%s: %s\nis  %s\nwas %s", outcome.End, outcome.Cause, state(), before)
	}
	fake.Fail = nil

	records := &journal.Memory{}
	whole := p.Steps
	p.Steps = whole[:1]
	stop := make(chan struct{})
	close(stop) // after the first action
	if outcome, err := engine.Run(t.Context(), p, engine.Deps{Actor: &hands{records: records, note: func(string) {}}, Journal: records, Clock: run.Clock{},
		Control: dns.Wish(v1alpha1.DesireRun), Theseus: "test", Stop: stop}); err != nil || outcome.End != engine.EndInterrupted {
		t.Fatalf("%+v, %v", outcome, err)
	}
	p.Steps = whole
	if outcome := carry(records); outcome.End != engine.EndDone {
		t.Fatalf("%s: %s", outcome.End, outcome.Cause)
	}
	if state() != before {
		t.Errorf("at the end it is\n%s\nand was\n%s", state(), before)
	}
	if n := len(fake.Writes()); n < 2*(len(given)-1) {
		t.Errorf("%d writes for %d changes there and back", n, len(given))
	}
}

// TestSwitchConfig: the original's own configuration, with the network to come and doubled nodes, goes into the plan's file, into
// the runbook, and from there to the command, as often as it is run.
func TestSwitchConfig(t *testing.T) {
	testdata := filepath.Join("..", "mirror", "config", "testdata")
	golden, err := txtar.ParseFile(filepath.Join(testdata, "kops-blue-to-calico.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	want := string(golden.Files[slices.IndexFunc(golden.Files, func(f txtar.File) bool { return f.Name == "output.yaml" })].Data)
	dir := t.TempDir()
	given := filepath.Join(dir, "given.yaml")
	command := "test ! -e " + given + ` && grep -c maxSurge "$THESEUS_CONFIG" >&2; cp "$THESEUS_CONFIG" ` + given + ` && test "$THESEUS_MIGRATION" = mirror-of-blue && test -e ` + dir + "/ready"
	var out strings.Builder
	m := &twins{app: &app{Streams: Streams{Out: &out, Err: &out}}}
	flags := &mirrorPlanFlags{config: []string{filepath.Join(testdata, "kops-blue.yaml")}}
	change := v1alpha1.ChangeSpec{Strategy: mirror.Name, To: "calico"}
	at := func(address string) []zone.RRSet {
		return []zone.RRSet{{Name: "web.example.org.", Type: zone.A, TTL: 300, Values: []string{address}}}
	}
	names := shift.New([]*zone.Zone{{Name: "example.org.", Can: zone.Can{Swap: true}}}, []zone.Move{{Zone: "example.org.",
		Unit: zone.Unit{Name: "web.example.org.", Before: at("192.0.2.1"), After: at("192.0.2.2")}, Services: []string{"Ingress shop/web"},
		Probes: []zone.Probe{{Kind: zone.ProbeTCP, Host: "web.example.org", Port: 80, At: []string{"192.0.2.2"}, Was: []string{"192.0.2.1"}}}}}, shift.Options{}, "test", time.Unix(1, 0))
	setup := mirror.Setup{Original: "blue", Mirror: "green", Names: names, Switch: mirror.Switch{To: "calico"}}

	refused := func(code int, says string) {
		t.Helper()
		err := m.extras(t.Context(), flags, change, &setup)
		if err == nil {
			t.Fatal("it was not refused")
		}
		if got := exitCode(&out, err); got != code || !strings.Contains(out.String(), says) || setup.Switch.Config != nil {
			t.Errorf("exit code %d, want %d and %q: %s", got, code, says, out.String())
		}
		out.Reset()
	}
	refused(exitUsage, "--switch-config makes a configuration with another network for a command")
	flags.switching.Command, setup.Switch.Command = command, command
	change.To = ""
	refused(exitUsage, "give --to, and --switch-command")
	change.To = "carrier-pigeon"
	refused(exitUsage, "carrier-pigeon")
	change.To, flags.answers = "calico", []string{"network=10.1.0.0/16"}
	refused(exitUsage, "network")
	flags.answers = nil
	if err := m.extras(t.Context(), flags, change, &setup); err != nil {
		t.Fatal(err)
	}
	original := &cluster.Snapshot{UID: "blue"}
	draft, err := mirror.Propose(&kind.Request{Snapshot: original, Change: change, Drivers: drivers.All(),
		Options: plan.Options{Name: "mirror-of-blue", Version: "test", Now: time.Unix(2, 0)}}, setup, nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := plan.Seal(original, draft)
	if err != nil {
		t.Fatal(err)
	}
	text := plan.Runbook(made)
	for _, part := range []string{"in the file $THESEUS_CONFIG for the command", "kops-blue.yaml:92 spec.networking: weave -> calico: {}", "spec.rollingUpdate.maxSurge: 10% -> 100%"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in the runbook:\n%s", part, text)
		}
	}
	data, err := plan.Write(made)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	action := p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "change" })].Actions[0]
	h := &hands{pair: &pairOf{plan: p}, dir: dir, note: func(string) {}}
	if _, err := h.Do(t.Context(), action, nil); err == nil || !strings.Contains(err.Error(), "the command failed: exit status 1: ") || !strings.Contains(hintOf(err), "change.log; mend it") {
		t.Errorf("a command that fails: %v", err)
	}
	for _, file := range []string{given, filepath.Join(dir, "ready")} { // as somebody mends what was wrong, and has edited what he was given
		if err := os.WriteFile(file, []byte("edited"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Do(t.Context(), action, nil); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(given); err != nil || string(got) != want {
		t.Errorf("%v: the command got\n%s\nwant\n%s", err, got, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "original.yaml")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v, %v", info, err)
	}
}

// TestRoll: a node that stays sick after the change is replaced once, and no other; nobody waits for one that gets well, and the time is
// over for one that does not.
func TestRoll(t *testing.T) {
	var lock sync.Mutex
	sick, looks := []string{"b", "c"}, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		if looks++; looks == 2 {
			sick = sick[:1] // c only took its time
		}
		var items []string
		for _, name := range []string{"a", "b", "c"} {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":%q},"status":{"conditions":[{"type":"Ready","status":"%v"}]}}`, name,
				map[bool]string{true: "Unknown", false: "True"}[slices.Contains(sick, name)]))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","items":[%s]}`, strings.Join(items, ","))
	}))
	defer server.Close()
	client, err := kube.New(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	original, err := replica.Connect(client)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	setup := mirror.Setup{Switch: mirror.Switch{Command: "true", Roll: `echo "$THESEUS_MIGRATION $THESEUS_NODE" >> ` + dir + "/rolled", RollAfter: step.Duration(100 * time.Millisecond)}}
	p := &plan.Plan{Name: "test", Mirror: &setup}
	h := &hands{pair: &pairOf{plan: p, original: original}, dir: dir, note: func(text string) { t.Log(text) }}
	rolled := func(want string) {
		t.Helper()
		action := step.Action{ID: "change/roll", Op: step.Mirror, Verb: mirror.Roll}
		if seen, err := (&hands{twins: &replica.Actor{}}).Observe(t.Context(), action, nil); err != nil || seen.Done || seen.Inverse != nil {
			t.Errorf("%+v, %v", seen, err)
		}
		if _, err := h.Do(t.Context(), action, nil); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(filepath.Join(dir, "rolled")); string(got) != want {
			t.Errorf("rolled were %q, want %q", got, want)
		}
	}
	rolled("test b\n")
	sick = nil
	rolled("test b\n")
	sick, setup.Switch.Roll = []string{"a"}, "echo no room >&2; exit 7"
	if _, err := h.Do(t.Context(), step.Action{Op: step.Mirror, Verb: mirror.Roll}, nil); err == nil || !strings.Contains(err.Error(), "node a: the command failed: exit status 7: no room") || hintOf(err) == "" {
		t.Errorf("a command that fails: %v", err)
	}
}

// TestSwitchable: which strategies may change the idle original, and why the others may not.
func TestSwitchable(t *testing.T) {
	for strategy, says := range map[string]string{"recreate": "", "adopt": "", "surge": "", "mirror": "has its mirror already", "upgrade": "leaves the network that there is",
		"rollout": "leaves the network that there is", "pool": "leaves the network that there is", "reflectors": "leaves the network that there is", "replant": "is not known"} {
		err := switchable(strategy)
		var refused *exitError
		if says == "" && err != nil || says != "" && (!errors.As(err, &refused) || refused.code != exitUsage || hintOf(err) == "" || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", strategy, err, says)
		}
	}
}
