package cloud_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cli"
	"github.com/theseus-cni/theseus/internal/mirror/cloud"
	"github.com/theseus-cni/theseus/internal/mirror/cloud/aws/awstest"
)

// TestCloudApply: the whole road over HTTP, interrupted in between; what was there before is not taken away by the way
// back.
func TestCloudApply(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("THESEUS_STATE_DIR", filepath.Join(dir, "state"))
	inventory := awstest.Inventory(t, filepath.Join("..", "..", "..", "mirror", "cloud", "testdata", "inventory.yaml"))
	fake := awstest.Start(t, inventory)
	theseus := func(code int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if got := cli.Main(context.Background(), append([]string{"theseus", "mirror", "cloud"}, args...),
			cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}); got != code {
			t.Fatalf("%v: exit %d, want %d: %s", args, got, code, out.String())
		}
		return out.String()
	}
	file, plan := filepath.Join(dir, "cloud.yaml"), filepath.Join(dir, "plan.yaml")
	if err := os.WriteFile(file, []byte(theseus(0, "inventory", "--endpoint", fake.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	theseus(3, "plan", "--original", "blue.example.org", "--mirror", "green.example.org",
		"--inventory", file, "-o", plan)

	attached := func() (there bool) {
		fake.Change(func(i *cloud.Inventory) {
			for _, r := range i.Roles {
				there = there || r.Name == "nodes.green.example.org" && len(r.Attached) == 2
			}
		})
		return there
	}
	// Somebody else gives the role its policy before we do.
	fake.Attach("nodes.green.example.org", "arn:aws:iam::123456789012:policy/backup")
	fake.Fail = func(action string) string {
		return map[string]string{"AuthorizeSecurityGroupIngress": "AuthFailure"}[action]
	}
	if said := theseus(1, "apply", plan, "--endpoint", fake.URL, "--yes"); !strings.Contains(said, "hint: ") {
		t.Errorf("no hint: %s", said)
	}
	fake.Fail = nil
	theseus(0, "apply", plan, "--endpoint", fake.URL, "--yes")
	done := len(fake.Writes())
	if said := theseus(0, "apply", plan, "--endpoint", fake.URL, "--yes"); !strings.Contains(said,
		"\n0 changes made") || len(fake.Writes()) != done {
		t.Errorf("a second time writes: %s", said)
	}
	theseus(0, "back", plan, "--endpoint", fake.URL, "--yes")
	if !attached() {
		t.Error("the way back took away what somebody else gave")
	}
	if got := len(fake.Writes()); got != 2*done {
		t.Errorf("%d writes there and %d back", done, got-done)
	}
	if said := theseus(0, "back", plan, "--endpoint", fake.URL, "--yes"); !strings.Contains(said, "0 changes made") {
		t.Errorf("back a second time: %s", said)
	}
}
