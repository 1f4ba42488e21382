package origin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/setting"
)

// Resolve evaluates all flags of sources for every node; the first source that has a flag wins.
func Resolve(ctx context.Context, a *app.App, snapshot *cluster.Snapshot, sources []string) (plan.Flags, error) {
	var resolved plan.Flags
	if len(sources) == 0 {
		return resolved, nil
	}
	fleet, now := setting.Read(snapshot, nil), time.Now().Unix()
	resolved.Values = map[string]map[string][]string{}
	digests := sha256.New()
	for _, text := range sources {
		set, err := flagsource.Load(ctx, a, text)
		if err != nil {
			return resolved, err
		}
		fmt.Fprintln(digests, set.Digest())
		values := fleet.Evaluate(set, set.Keys(), now, nil)
		for _, key := range values.Flags {
			if resolved.Values[key] != nil {
				continue
			}
			resolved.Values[key] = map[string][]string{}
			for n, r := range values.Of(key) {
				if r.Code != "" {
					return resolved, exit.Fail(exit.Failed, "theseus flags eval "+key+" --node "+fleet.Nodes()[n]+
						" --explain", "%s: %s", text, r.Message)
				}
				value := flagsource.Shown(values.Of(key), n)
				resolved.Values[key][value] = append(resolved.Values[key][value], fleet.Nodes()[n])
			}
		}
	}
	resolved.Digest = hex.EncodeToString(digests.Sum(nil))
	return resolved, nil
}
