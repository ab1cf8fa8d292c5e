import { LISTEN, type Uws, type UwsApp, type UwsListenSocket } from "./uws.ts";

export interface Listener {
  readonly port: number;
  readonly socket: UwsListenSocket;
}

/** The port cannot be listened on. The message names it and the setting it came from. */
class PortUnavailable extends Error {
  override readonly name = "PortUnavailable";
}

export interface ListenOptions {
  readonly host: string;
  readonly port: number;
  /**
   * With SO_REUSEPORT. Only where it is asked for: by default a stale process on the same port would take
   * half of the clients without a word.
   */
  readonly shared: boolean;
  /** The variable that the port was read from. */
  readonly setting: string;
}

/** Rejects with PortUnavailable; uWebSockets does not say more than that it failed. */
export function listen(uws: Uws, app: UwsApp, options: ListenOptions): Promise<Listener> {
  const { host, port, shared, setting } = options;
  return new Promise((resolve, reject) => {
    app.listen(host, port, shared ? LISTEN.shared : LISTEN.exclusive, (socket) => {
      if (socket) {
        resolve({ port: uws.module.us_socket_local_port(socket), socket });
        return;
      }
      const sharing = shared ? " or listened on without sharing" : "";
      reject(
        new PortUnavailable(
          `cannot listen on ${host}:${port}: the port is taken${sharing}. ` +
            `Stop what listens there, or set ${setting} to another one.`,
        ),
      );
    });
  });
}

export function closeListener(uws: Uws, listener: Listener): void {
  uws.module.us_listen_socket_close(listener.socket);
}
