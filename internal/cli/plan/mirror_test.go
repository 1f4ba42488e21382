package plan

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run/mirrored"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestSwitchConfig: the original's own configuration, with the network to come and doubled nodes, goes into the plan's
// file, into the runbook, and from there to the command, as often as it is run.
func TestSwitchConfig(t *testing.T) {
	testdata := filepath.Join("..", "..", "mirror", "config", "testdata")
	golden, err := txtar.ParseFile(filepath.Join(testdata, "kops-blue-to-calico.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	want := string(golden.Files[slices.IndexFunc(golden.Files, func(f txtar.File) bool {
		return f.Name == "output.yaml"
	})].Data)
	dir := t.TempDir()
	given := filepath.Join(dir, "given.yaml")
	command := "test ! -e " + given + ` && grep -c maxSurge "$THESEUS_CONFIG" >&2; cp "$THESEUS_CONFIG" ` + given +
		` && test "$THESEUS_MIGRATION" = mirror-of-blue && test -e ` + dir + "/ready"
	var out strings.Builder
	m := &clusters.Clusters{App: &app.App{Streams: app.Streams{Out: &out, Err: &out}}}
	flags := &mirrorFlags{config: []string{filepath.Join(testdata, "kops-blue.yaml")}}
	change := v1alpha1.ChangeSpec{Strategy: mirror.Name, To: "calico"}
	at := func(address string) []zone.RRSet {
		return []zone.RRSet{{Name: "web.example.org.", Type: zone.A, TTL: 300, Values: []string{address}}}
	}
	names := shift.New([]*zone.Zone{{Name: "example.org.", Can: zone.Can{Swap: true}}},
		[]zone.Move{{Zone: "example.org.",
			Unit:     zone.Unit{Name: "web.example.org.", Before: at("192.0.2.1"), After: at("192.0.2.2")},
			Services: []string{"Ingress shop/web"},
			Probes: []zone.Probe{{Kind: zone.ProbeTCP, Host: "web.example.org", Port: 80, At: []string{"192.0.2.2"},
				Was: []string{"192.0.2.1"}}}}}, shift.Options{}, "test", time.Unix(1, 0))
	setup := mirror.Setup{Original: "blue", Mirror: "green", Names: names, Switch: mirror.Switch{To: "calico"}}

	refused := func(code int, says string) {
		t.Helper()
		err := extras(t.Context(), m, flags, change, &setup)
		if err == nil {
			t.Fatal("it was not refused")
		}
		if got := exit.Code(&out, err); got != code || !strings.Contains(out.String(), says) ||
			setup.Switch.Config != nil {
			t.Errorf("exit code %d, want %d and %q: %s", got, code, says, out.String())
		}
		out.Reset()
	}
	refused(exit.Usage,
		"--switch-config makes a configuration with another network, for the command of --switch-command")
	flags.switching.Command, setup.Switch.Command = command, command
	change.To = ""
	refused(exit.Usage, "give --to, and --switch-command")
	change.To = "carrier-pigeon"
	refused(exit.Usage, "carrier-pigeon")
	change.To, flags.answers = "calico", []string{"network=10.1.0.0/16"}
	refused(exit.Usage, "network")
	flags.answers = nil
	if err := extras(t.Context(), m, flags, change, &setup); err != nil {
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
	for _, part := range []string{"configuration in the file $THESEUS_CONFIG",
		"kops-blue.yaml:92 spec.networking: weave -> calico: {}", "spec.rollingUpdate.maxSurge: 10% -> 100%"} {
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
	h := &mirrored.Actor{World: &mirrored.World{Plan: p}, Dir: dir, Note: func(string) {}}
	if _, err := h.Do(t.Context(), action, nil); err == nil || !strings.Contains(err.Error(),
		"the command failed: exit status 1: ") || !strings.HasPrefix(exit.HintOf(err), "fix the command; ") ||
		!strings.HasSuffix(exit.HintOf(err), "change.log") {
		t.Errorf("a command that fails: %v", err)
	}
	// as somebody mends what was wrong, and has edited what he was given
	for _, file := range []string{given, filepath.Join(dir, "ready")} {
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

// TestSwitchable: which strategies may change the idle original, and why the others may not.
func TestSwitchable(t *testing.T) {
	for strategy, says := range map[string]string{"recreate": "", "adopt": "", "surge": "",
		"mirror": "already has a mirror", "upgrade": "keeps the present network",
		"rollout": "keeps the present network", "pool": "keeps the present network",
		"reflectors": "keeps the present network", "replant": "is not known"} {
		err := switchable(strategy)
		var refused *exit.Error
		if says == "" && err != nil || says != "" && (!errors.As(err, &refused) || refused.Code != exit.Usage ||
			exit.HintOf(err) == "" || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", strategy, err, says)
		}
	}
}
