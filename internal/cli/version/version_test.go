package version

import (
	"runtime/debug"
	"testing"
)

func TestLine(t *testing.T) {
	setting := func(pairs ...string) (all []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return all
	}
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"a release": {
			debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.2.0"},
				Settings: setting("GOOS", "linux", "GOARCH", "arm64",
					"vcs.revision", "0123456789abcdef0123456789abcdef01234567",
					"vcs.time", "2026-01-02T03:04:05Z", "vcs.modified", "false")},
			"theseus v0.2.0 (commit 0123456789ab, 2026-01-02T03:04:05Z, go1.26.8 linux/arm64)",
		},
		"go install": {
			debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.2.0"},
				Settings: setting("GOOS", "darwin", "GOARCH", "arm64")},
			"theseus v0.2.0 (go1.26.8 darwin/arm64)",
		},
		"changed files": {
			debug.BuildInfo{Main: debug.Module{Version: "(devel)"},
				Settings: setting("vcs.revision", "0123456", "vcs.modified", "true")},
			"theseus dev (commit 0123456 with changes)",
		},
		"no information": {debug.BuildInfo{}, "theseus dev"},
	} {
		if got := of(&c.info).Line("theseus"); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if Read().Version == "" {
		t.Error("this binary has no version, not even dev")
	}
}
