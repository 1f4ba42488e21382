package aws_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/mirror/cloud"
	"github.com/theseus-cni/theseus/internal/mirror/cloud/aws"
	"github.com/theseus-cni/theseus/internal/mirror/cloud/aws/awstest"
)

const original, mirror = "blue.example.org", "green.example.org"

func inventory(t *testing.T) *cloud.Inventory {
	return awstest.Inventory(t, filepath.Join("..", "testdata", "inventory.yaml"))
}

func connect(t *testing.T) (*awstest.Fake, *aws.Cloud) {
	t.Helper()
	fake := awstest.Start(t, inventory(t))
	c, err := aws.Connect(context.Background(), fake.URL)
	if err != nil {
		t.Fatal(err)
	}
	return fake, c
}

func plan(t *testing.T, c *aws.Cloud) *cloud.Plan {
	t.Helper()
	i, err := c.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return cloud.Compare(i, original, mirror, nil)
}

func begin() error { return nil }

// TestThereAndBack reads the fake over HTTP, finds what the file has, does it, does it again without a write, and takes
// it back: what there is then is what there was.
func TestThereAndBack(t *testing.T) {
	fake, c := connect(t)
	ctx := context.Background()
	state := func() string {
		var text []byte
		fake.Change(func(i *cloud.Inventory) {
			for n := range i.Policies {
				i.Policies[n].Versions = 0 // the way back is a version, too
			}
			text, _ = json.Marshal(i)
		})
		return string(text)
	}
	p := plan(t, c)
	var have, want []string
	for _, a := range p.Actions {
		have = append(have, a.String())
	}
	for _, a := range cloud.Compare(inventory(t), original, mirror, nil).Actions {
		want = append(want, a.String())
	}
	if strings.Join(have, "\n") != strings.Join(want, "\n") {
		t.Fatalf("over HTTP the plan is\n%s\nand from the file\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	before := state()
	for round := range 2 {
		for _, a := range p.Steps(false) {
			if err := c.Do(ctx, a, false, begin); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if got := len(fake.Writes()); got != len(p.Actions) {
			t.Fatalf("round %d: %d writes for %d actions: %v", round, got, len(p.Actions), fake.Writes())
		}
	}
	if again := plan(t, c); len(again.Actions) > 0 {
		t.Errorf("still to do: %v", again.Actions)
	}
	for _, a := range p.Steps(true) {
		if err := c.Do(ctx, a, true, begin); err != nil {
			t.Fatal(err)
		}
	}
	if after := state(); after != before {
		t.Errorf("after the way back:\n%s\nbefore:\n%s", after, before)
	}
}

// TestChanged: what somebody else changed since the plan is left alone, on the way there and on the way back.
func TestChanged(t *testing.T) {
	fake, c := connect(t)
	ctx := context.Background()
	p := plan(t, c)
	theirs := cloud.Document(`{"Statement":[]}`)
	for _, a := range p.Actions {
		if a.After == "" {
			continue
		}
		fake.Change(func(i *cloud.Inventory) {
			for n := range i.Roles {
				switch r := &i.Roles[n]; {
				case r.Name == a.Subject && a.Verb == cloud.Trust:
					r.Trust = theirs
				case r.Name == a.Subject && a.Verb == cloud.PutPolicy:
					r.Inline[a.Name] = theirs
				}
			}
			for n := range i.Policies {
				if i.Policies[n].ARN == a.Subject {
					i.Policies[n].Document = theirs
				}
			}
		})
		for _, back := range []bool{false, true} {
			var changed *aws.Changed
			if err := c.Do(ctx, a, back, begin); !errors.As(err, &changed) || changed.Hint() == "" {
				t.Errorf("%s, back %v: %v", a, back, err)
			}
		}
	}
	if writes := fake.Writes(); len(writes) > 0 {
		t.Errorf("written all the same: %v", writes)
	}
}

// TestRefusals: what the API says comes with a hint, and nothing is written when it was not allowed to begin.
func TestRefusals(t *testing.T) {
	fake, c := connect(t)
	ctx := context.Background()
	p := plan(t, c)
	stop := errors.New("the journal is full")
	for _, a := range p.Actions {
		if err := c.Do(ctx, a, false, func() error { return stop }); !errors.Is(err, stop) {
			t.Errorf("%s: %v", a, err)
		}
	}
	if writes := fake.Writes(); len(writes) > 0 {
		t.Errorf("written without leave: %v", writes)
	}
	for _, refused := range []struct{ code, action, hint string }{{"AccessDenied", "ListRoles", "iam:List*"},
		{"InvalidClientTokenId", "ListPolicies", "credentials"},
		{"UnauthorizedOperation", "DescribeVpcs", "ec2:Describe*"}} {
		fake.Fail = func(action string) string { return map[string]string{refused.action: refused.code}[action] }
		_, err := c.Read(ctx)
		var hinted interface{ Hint() string }
		if err == nil || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), refused.hint) ||
			!strings.Contains(err.Error(), refused.code) {
			t.Errorf("%s: %v", refused.code, err)
		}
	}
	fake.Fail = nil
	dead, err := aws.Connect(ctx, "http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dead.Read(ctx); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody there: %v", err)
	}
	t.Setenv("AWS_REGION", "")
	if _, err := aws.Connect(ctx, fake.URL); err == nil || !strings.Contains(err.Error(), "no region") {
		t.Errorf("no region: %v", err)
	}
}
