// Package provider brings flag sets to where they are evaluated: sources (files, a directory, SQL, a Kubernetes
// object) behind one OpenFeature provider, and a provider and a server that speak OFREP.
//
// What every provider holds to: a set is taken whole or not at all, and an evaluation sees one set; a source
// that is broken or gone leaves the last good set in force and makes the provider STALE; once it is mended the
// provider is READY again, with no restart.
package provider
