package scenario

import (
	"context"
	"path/filepath"
)

// Canary switches Calico's data plane to nftables and back, one node first, while clients use the cluster.
func Canary(ctx context.Context, r *Rig) error {
	return r.underTraffic(ctx, "calico", func() error {
		for _, flag := range []string{"nftablesMode=Enabled", "nftablesMode=Disabled"} {
			r.Say("%s: a canary, then the rest", flag)
			if err := r.Rollout(ctx, filepath.Join(r.Dir, flag+".yaml"), flag); err != nil {
				return err
			}
			if _, err := r.Run(ctx, "flags", "verify", "--agent-image", AgentImage); err != nil {
				return err
			}
		}
		return nil
	})
}

// FelixAlone is what a change of Felix' data plane has to --accept in a lab, whose kube-proxy keeps its mode.
const FelixAlone = "felix/kube-proxy-mode=the lab changes Felix alone"

// Rollout plans and applies the rollout of a flag, one node first.
func (r *Rig) Rollout(ctx context.Context, plan, flag string) error {
	args := []string{"flags", "rollout", flag, "--waves", "1,0", "--agent-image", AgentImage,
		"--probe-interval", "20ms", "-o", plan, "--accept", FelixAlone}
	if _, err := r.Run(ctx, append(args, r.Flags...)...); err != nil {
		return err
	}
	_, err := r.Run(ctx, "apply", plan, "--yes")
	return err
}
