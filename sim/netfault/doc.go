// Package netfault breaks and heals the network between one client and one server.
package netfault
