package rigtest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// FoundAlone returns the version of the network that Theseus finds in a cluster, after inspecting its nodes. It is an
// error if Theseus finds another network, or a problem. theseus runs Theseus and returns its standard output; dir is a
// folder for its files.
func FoundAlone(theseus func(args ...string) ([]byte, error), dir, network string) (version string, err error) {
	snapshot := filepath.Join(dir, "snapshot.json")
	if _, err := theseus("snapshot", "--nodes", "--agent-image", scenario.AgentImage, "-o", snapshot); err != nil {
		return "", err
	}
	out, err := theseus("check", "--from", snapshot, "--only", "cni", "-o", "json")
	if err != nil {
		return "", err
	}
	var said struct {
		Networks []struct {
			Name, Version string
			Problems      []string
		}
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return "", err
	}
	if len(said.Networks) != 1 || said.Networks[0].Name != network || len(said.Networks[0].Problems) > 0 {
		return "", fmt.Errorf("the network is %s, but Theseus finds %+v", network, said.Networks)
	}
	return said.Networks[0].Version, nil
}

// Finds demands that Theseus soon finds a network, no other one, and no problem.
func Finds(t *testing.T, rig *scenario.Rig, network string) {
	t.Helper()
	err := settle(func() (bool, error) {
		_, err := FoundAlone(func(args ...string) ([]byte, error) {
			out, err := rig.Run(t.Context(), args...)
			return []byte(out), err
		}, t.TempDir(), network)
		return err == nil, err
	})
	if err != nil {
		t.Error(err)
	}
}
