package run

import "github.com/theseus-cni/theseus/internal/cluster/kube"

// NewActor makes an actor on the client's cluster that belongs to no migration.
func NewActor(client *kube.Client) *kube.Actor {
	return &kube.Actor{Typed: client.Typed, Dynamic: client.Dynamic, Mapper: client.Mapper, Clock: Clock{}}
}
