package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cloud"
	"github.com/theseus-cni/theseus/internal/cloud/aws/awstest"
	"github.com/theseus-cni/theseus/internal/dns"
	"github.com/theseus-cni/theseus/internal/engine"
	"github.com/theseus-cni/theseus/internal/journal"
	"github.com/theseus-cni/theseus/internal/plan"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/strategy/mirror"
	"github.com/theseus-cni/theseus/internal/zone/shift"
)

// TestCloudSteps carries out the steps about the cloud of a plan, over HTTP: a failure takes back what was done, and at the end
// all goes but what somebody else had given before, whoever goes on with it.
func TestCloudSteps(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "cloud", "testdata", "inventory.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := cloud.ReadInventory(data)
	if err != nil {
		t.Fatal(err)
	}
	fake := awstest.Start(t, inventory)
	given := slices.DeleteFunc(cloud.Compare(inventory, "blue.example.org", "green.example.org", nil).Actions, func(a cloud.Action) bool {
		return a.Verb == cloud.NewVersion // of which IAM keeps five, and this story would make more
	})
	fake.Change(func(i *cloud.Inventory) { // by somebody else, after the plan was made
		for n := range i.Roles {
			if i.Roles[n].Name == "nodes.green.example.org" {
				i.Roles[n].Attached = append(i.Roles[n].Attached, "arn:aws:iam::123456789012:policy/backup")
			}
		}
	})
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
	run := func(records engine.Journal) engine.Outcome {
		t.Helper()
		outcome, err := engine.Run(t.Context(), p, engine.Deps{Actor: &hands{records: records, note: func(string) {}}, Journal: records, Clock: clock{},
			Control: dns.Wish(v1alpha1.DesireRun), Theseus: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	fake.Fail = func(action string) string {
		return map[string]string{"AuthorizeSecurityGroupIngress": "AuthFailure"}[action]
	}
	if outcome := run(&journal.Memory{}); outcome.End != engine.EndRolledBack || state() != before {
		t.Errorf("%s: %s\nis  %s\nwas %s", outcome.End, outcome.Cause, state(), before)
	}
	fake.Fail = nil

	records := &journal.Memory{}
	whole := p.Steps
	p.Steps = whole[:1]
	stop := make(chan struct{})
	close(stop) // after the first action
	if outcome, err := engine.Run(t.Context(), p, engine.Deps{Actor: &hands{records: records, note: func(string) {}}, Journal: records, Clock: clock{},
		Control: dns.Wish(v1alpha1.DesireRun), Theseus: "test", Stop: stop}); err != nil || outcome.End != engine.EndInterrupted {
		t.Fatalf("%+v, %v", outcome, err)
	}
	p.Steps = whole
	if outcome := run(records); outcome.End != engine.EndDone {
		t.Fatalf("%s: %s", outcome.End, outcome.Cause)
	}
	if state() != before {
		t.Errorf("at the end it is\n%s\nand was\n%s", state(), before)
	}
	if n := len(fake.Writes()); n < 2*(len(given)-1) {
		t.Errorf("%d writes for %d changes there and back", n, len(given))
	}
}
