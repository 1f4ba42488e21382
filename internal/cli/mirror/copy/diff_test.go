package copy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/mirror/clusters"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
)

// TestDiffShowsNoSecret: a difference says which field of a Secret differs, and never how; of other objects it shows
// values but passwords and tokens.
func TestDiffShowsNoSecret(t *testing.T) {
	pass := &replica.Pass{Delta: &objects.Delta{Waves: [][]objects.Step{{
		{Verb: "update", Key: objects.Key{Kind: "Secret", Namespace: "shop", Name: "db"}, Why: []objects.Difference{
			{Path: "data.user", Want: "aHVudGVyMg==", Have: "aHVudGVyMw=="},
			{Path: "metadata.annotations", Want: map[string]any{"last": "hunter2"}, Have: nil}}},
		{Verb: "update", Key: objects.Key{Group: "metallb.io", Kind: "BGPPeer", Namespace: "shop",
			Name: "tor"}, Why: []objects.Difference{
			{Path: "spec.password", Want: "hunter2", Have: "hunter3"},
			{Path: "spec.myASN", Want: int64(64512), Have: int64(64513)}}},
		{Verb: "update", Key: objects.Key{Group: "apps", Kind: "Deployment", Namespace: "shop",
			Name: "web"}, Why: []objects.Difference{
			{Path: "spec.template.spec.containers[web].env[API_TOKEN].value", Want: "hunter2", Have: "hunter3"},
			{Path: "spec.template.spec.containers[0].env[3].value", Want: "hunter2", Have: "hunter3"},
			{Path: "spec.template.spec.containers[0].args[3]", Want: "--token=hunter2", Have: "--token=hunter3"},
			{Path: "spec.template.spec.containers[web].env",
				Want: []any{map[string]any{"name": "API_TOKEN", "value": "hunter2"}}, Have: nil}}},
	}}}}
	for _, form := range []string{"", "json"} {
		var out bytes.Buffer
		m := &clusters.Clusters{App: &app.App{Streams: app.Streams{Out: &out}, Output: form}}
		showDiff(m, pass)
		text := out.String()
		if strings.Contains(text, "hunter") || strings.Contains(text, "aHVud") {
			t.Errorf("-o %q shows a secret:\n%s", form, text)
		}
		for _, want := range []string{"data.user", "spec.password", "64512", "64513"} {
			if !strings.Contains(text, want) {
				t.Errorf("-o %q does not show %s:\n%s", form, want, text)
			}
		}
	}
}
