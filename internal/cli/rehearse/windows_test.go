package rehearse

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
)

// TestWindows: a rehearsal of a Change with windows ignores them, and says so.
func TestWindows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "change.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: theseus.dev/v1alpha1\nkind: Change\nmetadata: {name: c}\n"+
		"spec: {to: calico, agentImage: a, windows: [{days: [Sat], from: '22:00', to: '05:00', timeZone: UTC}]}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	scratch := "scratch"
	a := &app.App{Streams: app.Streams{Err: &out}, Context: &scratch}
	o, command := options{from: []string{"s.json"}, wait: time.Minute, dry: true}, &cobra.Command{}
	o.change.Register(command)
	if err := command.ParseFlags([]string{"--change", file}); err != nil {
		t.Fatal(err)
	}
	spec, err := o.read(command, a)
	if err != nil || len(spec.Windows) > 0 || spec.To != "calico" ||
		!strings.Contains(out.String(), "note: the windows of the change are the original's") {
		t.Errorf("%+v, %v: %s", spec.Windows, err, out.String())
	}
}
