// Package provider loads flag sets from sources (files, a directory, SQL, a Kubernetes object) and evaluates them
// through one OpenFeature provider. It also has a provider and a server that speak OFREP.
//
// Every provider guarantees: a set is loaded as a whole or not at all, and an evaluation uses one set; if the source
// is broken or gone, the last good set stays in effect and the provider is STALE; once the source works again, the
// provider becomes READY without a restart.
package provider
