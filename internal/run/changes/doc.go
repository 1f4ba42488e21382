// Package changes makes plans for Changes in the cluster. It finds Changes, decides what to do about each (Decide),
// makes the plan with package propose, and writes it to the cluster as a Migration that waits for its approval. Package
// controller runs that Migration. The status of a Change says what was found, what the plan does, and what a person can
// do next.
//
// It writes nothing but Theseus' own objects. Before it creates or withdraws a Migration, it takes the lock on the
// cluster, so that no run begins meanwhile. It keeps nothing that it needs: a Migration names the version of the Change
// that it is for.
package changes
