package run

import "github.com/theseus-cni/theseus/internal/cluster/kube"

// NewActor makes an actor that reads and acts on the cluster of client outside of any migration.
func NewActor(client *kube.Client) *kube.Actor {
	return &kube.Actor{Typed: client.Typed, Dynamic: client.Dynamic, Mapper: client.Mapper, Clock: Clock{}}
}
