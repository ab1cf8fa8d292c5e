/** Applies a run's commands in stream order, one at a time. */
import {
  type Broker,
  BrokerUnavailable,
  type CommandTail,
  type RunRef,
  type StoredCommand,
} from "@throughline/broker";

export interface CommandPumpOptions {
  readonly broker: Pick<Broker, "commands">;
  readonly ref: RunRef;
  /** COMMANDS sequence applied through. */
  readonly after: number;
  /**
   * What a command has to wait for before it is applied, if for anything. It must settle in time: all
   * that is behind it waits too, but a command that stops the agent, or whoever drains, ends the wait.
   */
  readonly ready?: (command: StoredCommand) => Promise<void> | undefined;
  /** Does the command stop the agent? */
  readonly presses?: (command: StoredCommand) => boolean;
  /** Resolves when the command's answer is stored. `stop`: nothing is applied after it. */
  readonly apply: (command: StoredCommand) => Promise<"next" | "stop">;
  /** The command log contradicts itself, or a command could not be applied. No further one is. */
  readonly onFault: (error: unknown) => void;
}

/** Commands in memory. Beyond it the tail is let go and opened again where the pump stands. */
const MAX_HELD = 1_000;
const RETRY_MS = 100;

type State = "open" | "stopped";

export class CommandPump {
  readonly #options: CommandPumpOptions;
  readonly #held: StoredCommand[] = [];
  #tail: CommandTail | undefined;
  #position: number;
  #applying: Promise<void> | undefined;
  /** The last command, or whatever else is decided in between. */
  #turn: Promise<unknown> = Promise.resolve();
  #state: State = "open";
  /** Set while a command is held back: ends that. */
  #release: (() => void) | undefined;
  /** So many wait for everything: nothing is held back. */
  #drains = 0;
  #onHold: () => void = () => undefined;

  constructor(options: CommandPumpOptions) {
    this.#options = options;
    this.#position = options.after;
    this.#tail = this.#open();
  }

  /** Resolves when every command that the leader holds now has been applied, or the pump has stopped. */
  async drain(signal: AbortSignal): Promise<void> {
    this.#drains += 1;
    this.#letGo();
    try {
      await this.#drain(signal, async () => this.#applying);
    } finally {
      this.#drains -= 1;
    }
  }

  /** The same, but resolves also when a command is held back and nothing behind it presses. */
  drainToHold(signal: AbortSignal): Promise<void> {
    return this.#drain(signal, async () => {
      const held = new Promise<void>((resolve) => (this.#onHold = resolve));
      if (this.#release === undefined) await Promise.race([this.#applying, held]);
    });
  }

  async #drain(signal: AbortSignal, applied: () => Promise<void>): Promise<void> {
    while (this.#state === "open") {
      signal.throwIfAborted();
      const tail = this.#tail;
      try {
        // Applied first: a tail that was let go for its length is opened again by that.
        await applied();
        if (tail === undefined || tail !== this.#tail) continue;
        await tail.drainToLeader();
        await applied();
        if (tail !== this.#tail) continue;
        if (this.#held.length === 0 || this.#release !== undefined) return;
      } catch (error) {
        // Nothing final can be written either while the leader is away.
        if (!(error instanceof BrokerUnavailable)) throw error;
        // On a closed connection that is said at once: without a pause no timer would ever fire.
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  /**
   * Decides something when the command in hand has been applied; none is judged until `decide` has
   * settled. So what is due by the clock and what a command wants never both take effect.
   */
  between<T>(decide: () => Promise<T>): Promise<T> {
    const decided = this.#turn.then(decide);
    this.#turn = decided.catch(() => undefined);
    return decided;
  }

  /** Resolves when the command in hand has been applied. */
  async stop(): Promise<void> {
    this.#halt();
    await this.#applying;
  }

  #halt(): void {
    this.#state = "stopped";
    this.#held.length = 0;
    this.#tail?.close();
    this.#tail = undefined;
    this.#letGo();
  }

  #open(): CommandTail {
    const { broker, ref, onFault } = this.#options;
    return broker.commands.tail(ref, this.#position, {
      command: (command) => this.#take(command),
      fault: (error) => {
        this.#halt();
        onFault(error);
      },
    });
  }

  #take(command: StoredCommand): void {
    if (this.#state === "stopped" || this.#tail === undefined) return;
    if (this.#held.length >= MAX_HELD) {
      this.#tail.close();
      this.#tail = undefined;
      this.#letGo();
      return;
    }
    this.#held.push(command);
    if (this.#release && this.#options.presses?.(command)) this.#letGo();
    this.#applying ??= this.#applyAll();
  }

  /** At once nothing is held back: whoever drains must not take it for that once more. */
  #letGo(): void {
    const release = this.#release;
    this.#release = undefined;
    release?.();
  }

  async #readyFor(command: StoredCommand): Promise<void> {
    const { ready, presses } = this.#options;
    const isReady = ready?.(command);
    if (isReady === undefined || this.#drains > 0 || this.#tail === undefined) return;
    if (this.#held.some((one) => presses?.(one))) return;
    const released = new Promise<void>((resolve) => (this.#release = resolve));
    this.#onHold();
    await Promise.race([isReady, released]);
    this.#release = undefined;
  }

  async #applyAll(): Promise<void> {
    // The tail is being told of the command just now; what is done about it may close the tail.
    await Promise.resolve();
    try {
      for (let next = this.#held.shift(); next !== undefined; next = this.#held.shift()) {
        await this.#readyFor(next);
        // Whoever goes on with the run finds it in the command log.
        if (this.#state !== "open") break;
        const then = await this.between(() => this.#options.apply(next));
        this.#position = next.streamSeq;
        if (then === "stop") this.#halt();
      }
      if (this.#state === "open") this.#tail ??= this.#open();
    } catch (error) {
      this.#halt();
      this.#options.onFault(error);
    } finally {
      this.#applying = undefined;
    }
  }
}
