package scenario

import (
	"context"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/image"
	"github.com/theseus-cni/theseus/lab/internal/network"
)

// SocketLB are the values with which Cilium's chart is rendered for a change: Cilium translates Services when pods
// connect. Without it, v1.20.2 lets single packets past policy, with any network or none before it:
// docs/explanation/cilium-next-to-flannel.md.
var SocketLB = []string{"--set", "socketLB.enabled=true"}

// CiliumImages builds Cilium's images, which nodes of other networks do not have. It returns their files.
func CiliumImages(ctx context.Context, programs *build.Cache) ([]string, error) {
	images, err := image.All(ctx, programs, network.Cilium, "")
	if err != nil {
		return nil, err
	}
	var files []string
	for _, i := range images {
		if strings.HasPrefix(i.Name, "quay.io/cilium/") {
			files = append(files, i.Tar)
		}
	}
	return files, nil
}

// Load gives the lab's nodes images.
func (r *Rig) Load(ctx context.Context, files []string) error {
	for _, file := range files {
		if _, err := r.InLab(ctx, "image", "load", file); err != nil {
			return err
		}
	}
	return nil
}
