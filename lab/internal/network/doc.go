// Package network knows how each network is deployed: the manifest that its users apply, and the files
// that it needs on the nodes beforehand.
//
// Third parties' manifests are read from their own modules, at the version whose program the lab
// builds, and adapted by replacing whole phrases of the text. So comments survive, what is applied is
// what a user downloads and edits, and a phrase that is gone in another version is an error rather
// than a manifest that silently lacks something.
package network
