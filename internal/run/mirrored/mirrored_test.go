package mirrored

import (
	"encoding/json"
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

	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/cloud"
	"github.com/theseus-cni/theseus/internal/mirror/cloud/aws/awstest"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestCloudSteps carries out the steps about the cloud of a plan, over HTTP: a failure takes back what was done, and at
// the end all goes but what somebody else had given before, whoever goes on with it.
func TestCloudSteps(t *testing.T) {
	inventory := awstest.Inventory(t, filepath.Join("..", "..", "mirror", "cloud", "testdata", "inventory.yaml"))
	fake := awstest.Start(t, inventory)
	given := slices.DeleteFunc(cloud.Compare(inventory, "blue.example.org", "green.example.org",
		nil).Actions, func(a cloud.Action) bool {
		return a.Verb == cloud.NewVersion // of which IAM keeps five, and this story would make more
	})
	// by somebody else, after the plan was made
	fake.Attach("nodes.green.example.org", "arn:aws:iam::123456789012:policy/backup")
	setup := mirror.Setup{Names: shift.New(nil, nil, shift.Options{}, "test", time.Unix(1, 0)),
		Cloud: &mirror.CloudSetup{Endpoint: fake.URL, Actions: given}}
	p := &plan.Plan{Name: "test", Hash: "test", Steps: slices.DeleteFunc(mirror.Steps(setup, nil),
		func(s step.Step) bool { return !strings.HasSuffix(s.ID, "cloud") })}
	if len(p.Steps) != 2 || len(given) < 3 {
		t.Fatalf("%d steps with %d changes", len(p.Steps), len(given))
	}
	state := func() (text string) {
		fake.Change(func(i *cloud.Inventory) {
			roles := slices.SortedFunc(slices.Values(i.Roles), func(a, b cloud.Role) int {
				return strings.Compare(a.Name, b.Name)
			})
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
		outcome, err := engine.Run(t.Context(), p,
			engine.Deps{Actor: &Actor{Records: records, Note: func(string) {}}, Journal: records, Clock: run.Clock{},
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
	if outcome, err := engine.Run(t.Context(), p,
		engine.Deps{Actor: &Actor{Records: records, Note: func(string) {}}, Journal: records, Clock: run.Clock{},
			Control: dns.Wish(v1alpha1.DesireRun), Theseus: "test", Stop: stop}); err != nil ||
		outcome.End != engine.EndInterrupted {
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

// TestRoll: a node that stays sick after the change is replaced once, and no other; nobody waits for one that gets
// well, and the time is over for one that does not.
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
			items = append(items,
				fmt.Sprintf(`{"metadata":{"name":%q},"status":{"conditions":[{"type":"Ready","status":"%v"}]}}`, name,
					map[bool]string{true: "Unknown", false: "True"}[slices.Contains(sick, name)]))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","items":[%s]}`, strings.Join(items, ","))
	}))
	defer server.Close()
	client, err := kube.New(&rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	original, err := replica.Connect(client)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	setup := mirror.Setup{Switch: mirror.Switch{Command: "true", Roll: `echo "$THESEUS_MIGRATION $THESEUS_NODE" >> ` +
		dir + "/rolled", RollAfter: step.Duration(100 * time.Millisecond)}}
	p := &plan.Plan{Name: "test", Mirror: &setup}
	h := &Actor{World: &World{Plan: p, Original: original}, Dir: dir, Note: func(text string) { t.Log(text) }}
	rolled := func(want string) {
		t.Helper()
		action := step.Action{ID: "change/roll", Do: step.Mirror{Verb: mirror.Roll}}
		if seen, err := (&Actor{Twins: &replica.Actor{}}).Observe(t.Context(), action, nil); err != nil ||
			seen.Done || seen.Inverse != nil {
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
	if _, err := h.Do(t.Context(), step.Action{Do: step.Mirror{Verb: mirror.Roll}}, nil); err == nil ||
		!strings.Contains(err.Error(), "node a: the command failed: exit status 7: no room") ||
		engine.HintOf(err) == "" {
		t.Errorf("a command that fails: %v", err)
	}
}
